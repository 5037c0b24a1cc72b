"""hnswlib alone. It is the library of hrag's segments."""

from pathlib import Path

import hnswlib
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.peer import Query
from benchmarks.peers.scale.peer import CANDIDATES, EF_CONSTRUCTION, M
from benchmarks.peers.scale.raw_index import RawIndex
from benchmarks.peers.vectors import DIMENSION


class HnswlibLeaves(RawIndex):
    """The peer of hnswlib, which searches without Python's lock."""

    def _create(self, count: int) -> None:
        self._graph = hnswlib.Index("ip", DIMENSION)
        self._graph.init_index(count, M, EF_CONSTRUCTION)

    def _add(self, vectors: NDArray[np.float32]) -> None:
        self._graph.add_items(vectors)

    def set_ef(self, ef: int) -> None:
        self._graph.set_ef(ef)

    def _rows(self, query: Query) -> list[int]:
        (rows,), _ = self._graph.knn_query(query.vector, CANDIDATES, num_threads=1)
        return rows.tolist()

    def _write(self, path: Path) -> None:
        self._graph.save_index(str(path))
