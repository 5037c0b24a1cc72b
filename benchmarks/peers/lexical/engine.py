"""The interface of an engine, and which there are."""

from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.lexical.terms import Query
from benchmarks.peers.registry import Entry

LIMIT = 200  # hrag's default number of candidates of each source.

Found = list[tuple[int, float]]
"""Leaves, best first, with their scores by Lucene's BM25 without its constant factor."""


class Engine(Protocol):
    """One engine, made with an empty folder for its files."""

    def index(self, corpus: Path) -> int:
        """Makes its index of the leaves in `corpus` searchable; returns its bytes on disk."""

    def prepared(self, query: Query) -> Any:
        """Returns the argument of `search`; not timed."""

    def search(self, prepared: Any) -> Any:
        """Finds the best LIMIT leaves; timed."""

    def found(self, query: Query) -> Found:
        """Returns what `search` finds."""

    def close(self) -> None:
        """Closes what is open."""


ENGINES = {
    "hrag": Entry("hrag, lexical source", "lexical.hrag_itself:Hrag"),
    "tantivy": Entry("tantivy", "lexical.tantivy:Tantivy", ("tantivy",)),
    "bm25s": Entry("bm25s", "lexical.bm25s:Bm25s", ("bm25s",)),
}
