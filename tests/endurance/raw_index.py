"""Measures the raw index, hnswlib alone in a separate process: the baseline of indexing rates."""

import sys
import time

import hnswlib
import numpy as np

from tests.endurance.processes import number_from

_M = 16
_EF_CONSTRUCTION = 200
_THREADS = 2
_SEED = 61


def raw_seconds(count: int, dimension: int) -> float:
    """Returns the seconds in which `add_items` adds `count` random unit vectors on two threads."""
    return number_from(__name__, count, dimension)


def _seconds(count: int, dimension: int) -> float:
    vectors = np.random.default_rng(_SEED).standard_normal((count, dimension), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = hnswlib.Index(space="ip", dim=dimension)
    index.init_index(max_elements=count, M=_M, ef_construction=_EF_CONSTRUCTION)
    began = time.perf_counter()
    index.add_items(vectors, num_threads=_THREADS)
    return time.perf_counter() - began


if __name__ == "__main__":
    print(_seconds(*map(int, sys.argv[1:])))  # noqa: T201 - the parent process reads the output
