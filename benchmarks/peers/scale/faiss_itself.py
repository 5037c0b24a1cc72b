"""FAISS's HNSW index alone, without a library around it."""

from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.peer import Query
from benchmarks.peers.scale.faiss_index import hnsw
from benchmarks.peers.scale.peer import CANDIDATES
from benchmarks.peers.scale.raw_index import RawIndex


class FaissLeaves(RawIndex):
    """The peer of FAISS, which searches without Python's lock."""

    def _create(self, count: int) -> None:
        del count  # The index grows.
        self._graph = hnsw(faiss.METRIC_INNER_PRODUCT)

    def _add(self, vectors: NDArray[np.float32]) -> None:
        self._graph.add(vectors)

    def set_ef(self, ef: int) -> None:
        self._graph.hnsw.efSearch = ef

    def _rows(self, query: Query) -> list[int]:
        _, (rows,) = self._graph.search(query.vector[None], CANDIDATES)
        return rows.tolist()

    def _write(self, path: Path) -> None:
        faiss.write_index(self._graph, str(path))
