"""The engine bm25s with its method lucene and its numpy backend.

It computes all scores when it indexes.
"""

from pathlib import Path
from typing import Any

import bm25s

from benchmarks.peers.lexical.engine import LIMIT, RankedLeaves
from benchmarks.peers.lexical.terms import Leaves, Query
from benchmarks.peers.timing import folder_bytes


class Bm25s:
    """Searches with bm25s. Implements `Engine`."""

    def __init__(self, folder: Path) -> None:
        self._bm25 = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        self._folder = folder

    def index(self, corpus: Path) -> int:
        leaves = Leaves.load(corpus)
        vocabulary = {str(number): number for number in range(int(leaves.numbers.max()) + 1)}
        self._bm25.index((list(leaves), vocabulary), show_progress=False)
        self._bm25.save(self._folder)
        return folder_bytes(self._folder)

    def prepared(self, query: Query) -> list[list[str]]:
        return [list(map(str, query.terms))]

    def search(self, prepared: list[list[str]]) -> Any:
        return self._bm25.retrieve(prepared, k=LIMIT, show_progress=False)

    def ranked_leaves(self, query: Query) -> RankedLeaves:
        (rows,), (scores,) = self.search(self.prepared(query))
        pairs = zip(rows.tolist(), scores.tolist(), strict=True)
        return [(row, score) for row, score in pairs if score > 0]

    def close(self) -> None:
        """Does nothing."""
