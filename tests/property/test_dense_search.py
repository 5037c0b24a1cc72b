"""`DenseSearch` returns the same bits as its twin, which is a plain implementation in Python.

The numbers of vectors are small multiples of 1/8. So all inner products are exact, in whatever
order they are added, and many of them are equal.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import hnswlib
import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import hrag_fast
from hrag.engine.embedded.segments.vector_part import rows_of_items
from tests import twins

DIMENSION = 4
ITEMS = (1, 2, 9, 40)
EF = 8


def vectors_of(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 9, (count, DIMENSION)).astype(np.float32) / 8


@cache
def index_of(count: int) -> bytes:
    """Returns the file of an index of `count` vectors. It has two links for each vector."""
    index = hnswlib.Index(space="ip", dim=DIMENSION)
    index.init_index(max_elements=count, M=2, ef_construction=10)
    index.add_items(vectors_of(count, count), np.arange(count), num_threads=1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        index.save_index(str(path))
        return path.read_bytes()


def segment_of(module, items: np.ndarray, count: int):
    heads, members = rows_of_items(items.astype(np.int64), count)
    return module.SegmentVectors(module.Graph(index_of(count)), items, heads, members, EF)


@st.composite
def views(draw):
    """Draws a view: its segments (items, count of items), its tail, `alive`, and its row count."""
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    segments = []
    for count in draw(st.lists(st.sampled_from(ITEMS), max_size=2)):
        items = np.arange(count, dtype=np.uint32)
        if draw(st.booleans()):  # Some vectors belong to several rows, others to none.
            items = random.integers(count, size=random.integers(1, 2 * count)).astype(np.uint32)
        segments.append((items, count))
    tail = vectors_of(draw(st.sampled_from([0, 1, 7, 30])), 5)
    count = sum(len(items) for items, _ in segments) + len(tail)
    alive = (random.random(count + 2) < draw(st.sampled_from([0.2, 0.9, 1.0]))).astype(np.uint8)
    return segments, tail, alive, count, random


@hypothesis_settings(max_examples=200)
@given(
    views(),
    st.sampled_from([None, 0.05, 0.5, 1.0]),
    st.booleans(),
    st.sampled_from([0, 1, 3, 33]),
    st.lists(st.sampled_from([1, 2, 5, 20, 100]), min_size=1, max_size=3),
    st.sampled_from(range(4)),
)
def test_a_search_equals_its_twin(view, share, exact, search_cost, counts, aggregation):
    segments, tail, alive, count, random = view
    living = int(alive[:count].sum())
    rows = None
    if share is not None:
        passes = (alive[:count] != 0) & (random.random(count) < share)
        rows = np.flatnonzero(passes).astype(np.uint32)
    labels = np.sort(random.integers(0, 6 << 20, len(alive)).astype(np.uint64))
    ancestors = random.integers(0, 4, len(alive)).astype(np.uint32)
    query = vectors_of(1, random.integers(1000))[0]

    def searched(module):
        parts = [segment_of(module, *segment) for segment in segments]
        search, climbing = (
            module.DenseSearch(query, parts, tail, alive, count, living, search_cost)
            for _ in range(2)
        )
        results = []
        for number in sorted(counts):
            found, groups = climbing.climb(number, labels, ancestors, aggregation, rows, exact)
            assert_same(found, search.nearest(number, rows, exact))
            results += [found, groups]
        every = np.arange(count, dtype=np.uint32)
        return [*results, (search.scores(every[1::2].copy()), search.scores(every[:0]))]

    for result, expected in zip(searched(hrag_fast), searched(twins), strict=True):
        assert_same(result, expected)


def assert_same(result, expected):
    for one, other in zip(result, expected, strict=True):
        if isinstance(one, bool):
            assert one == other
        else:
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()
