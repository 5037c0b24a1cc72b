"""FAISS's HNSW index, which is the same for all peers that use it."""

import faiss

from benchmarks.peers.scale.peer import EF_CONSTRUCTION, M
from benchmarks.peers.vectors import DIMENSION


def hnsw(metric: int) -> faiss.IndexHNSWFlat:
    """Returns an empty index. `metric` is `faiss.METRIC_L2` or `faiss.METRIC_INNER_PRODUCT`."""
    index = faiss.IndexHNSWFlat(DIMENSION, M, metric)
    index.hnsw.efConstruction = EF_CONSTRUCTION
    return index
