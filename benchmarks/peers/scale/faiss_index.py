"""FAISS's HNSW index, which is the same for both libraries that use it."""

import faiss

from benchmarks.peers.vectors import DIMENSION

_M = 16
_EF_CONSTRUCTION = 200


def hnsw(metric: int) -> faiss.IndexHNSWFlat:
    """Returns an empty index. `metric` is `faiss.METRIC_L2` or `faiss.METRIC_INNER_PRODUCT`."""
    index = faiss.IndexHNSWFlat(DIMENSION, _M, metric)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    return index
