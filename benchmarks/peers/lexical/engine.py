"""The interface of an engine, and the list of engines."""

from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.lexical.terms import Query
from benchmarks.peers.registry import Entry

LIMIT = 200  # The default number of candidates of each source in hrag.

RankedLeaves = list[tuple[int, float]]
"""Leaves, best first, with their scores: Lucene's BM25 without its constant factor."""


class Engine(Protocol):
    """An engine. Its factory is called with an empty folder for its files."""

    def index(self, corpus: Path) -> int:
        """Makes the leaves in `corpus` searchable; returns the bytes of the index on disk."""

    def prepared(self, query: Query) -> Any:
        """Returns the argument of `search` for a query. This call is not timed."""

    def search(self, prepared: Any) -> Any:
        """Finds the best LIMIT leaves. This call is timed."""

    def ranked_leaves(self, query: Query) -> RankedLeaves:
        """Returns the leaves that `search` finds."""

    def close(self) -> None:
        """Closes all files and connections."""


ENGINES = {
    "hrag": Entry("hrag, lexical source", "lexical.hrag_itself:Hrag"),
    "tantivy": Entry("tantivy", "lexical.tantivy:Tantivy", ("tantivy",)),
    "bm25s": Entry("bm25s", "lexical.bm25s:Bm25s", ("bm25s",)),
}
