"""`DenseSearch` refuses wrong arguments, and scores vectors alike in a segment and in a tail."""

import re
import struct
from collections import Counter
from typing import Any

import hnswlib
import numpy as np
import pytest

from hrag_fast import MAX, DenseSearch, Graph, SegmentVectors
from tests import twins
from tests.support.documents.fakes import query_vector, unit_vectors
from tests.twins.graph import HEADER

NONE = np.empty(0, np.uint32)
COUNT = 300
DIMENSION = 16


def index_file(vectors, path) -> bytes:
    index = hnswlib.Index(space="ip", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors))
    index.add_items(vectors, np.arange(len(vectors)))
    index.save_index(str(path))
    return path.read_bytes()


@pytest.fixture
def file(tmp_path) -> bytes:
    return index_file(unit_vectors(COUNT, seed=1), tmp_path / "index")


def numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32)


def segment_of(file: bytes, count: int = COUNT) -> SegmentVectors:
    return SegmentVectors(Graph(file), numbers(count), NONE, NONE, 10)


def searched(file: bytes, **changed: Any) -> DenseSearch:
    """Returns a search of a segment of COUNT rows and a tail of five rows; no row is deleted."""
    arguments = {
        "query": query_vector(0),
        "segments": [segment_of(file)],
        "tail": unit_vectors(5, seed=2),
        "alive": np.ones(COUNT + 5, np.uint8),
        "count": COUNT + 5,
        "living": COUNT + 5,
    }
    return DenseSearch(**arguments | changed)


@pytest.mark.parametrize("dimension", [1, 2, 16, 33, 384])
@pytest.mark.parametrize("count", [1, 300])
def test_vectors_have_the_same_scores_in_a_segment_and_in_a_tail(tmp_path, count, dimension):
    random = np.random.default_rng(dimension)
    vectors = random.standard_normal((count, dimension)).astype(np.float32)
    query = random.standard_normal(dimension).astype(np.float32)
    segment = segment_of(index_file(vectors, tmp_path / "index"), count)
    alive = np.ones(2 * count, np.uint8)
    search = DenseSearch(query, [segment], vectors, alive, 2 * count, 2 * count)
    indexed = segment.graph.scores(query, numbers(count)).tobytes()
    assert search.scores(numbers(2 * count)).tobytes() == 2 * indexed
    assert search.nearest(2 * count).scores.tobytes() == 2 * indexed
    assert np.allclose(search.scores(numbers(count)), vectors @ query, atol=1e-4)


def test_an_empty_view_has_no_rows():
    search = DenseSearch(np.ones(3, np.float32), [], np.empty((0, 3), np.float32), b"", 0, 0)
    found = search.nearest(5)
    assert (found.rows.dtype, found.scores.dtype) == (np.uint32, np.float32)
    assert (len(found.rows), len(found.scores), found.exact, found.complete) == (0, 0, True, True)


def test_a_segment_whose_graph_reaches_too_few_items_is_scanned(file):
    """The links of all elements are removed. So a search reaches only the entry point."""
    element_bytes, *_ = struct.unpack_from("<Q", file, 24)
    damaged = bytearray(file)
    for element in range(COUNT):
        struct.pack_into("<H", damaged, HEADER.size + element * element_bytes, 0)
    whole, cut = (searched(each, search_cost=0) for each in (file, bytes(damaged)))
    assert not whole.nearest(10).exact
    found = cut.nearest(10)
    assert found.exact
    assert found.rows.tobytes() == searched(file).nearest(10, exact=True).rows.tobytes()


def test_a_filter_with_half_of_the_rows_rarely_makes_a_search_request_rows_twice(file, monkeypatch):
    """To find five eligible rows, a search needs ten rows on average.

    If it requested only ten, every second search would need another request. The twin counts the
    requests, because it requests the same rows as the kernel.
    """
    requests: Counter[int] = Counter()
    nearest = twins.GraphSearch.nearest
    monkeypatch.setattr(
        twins.GraphSearch,
        "nearest",
        lambda self, count: requests.update([count]) or nearest(self, count),
    )
    segment = twins.SegmentVectors(twins.Graph(file), numbers(COUNT), NONE, NONE, 10)
    alive, tail = np.ones(COUNT, np.uint8), np.empty((0, DIMENSION), np.float32)
    for seed in range(20):
        rows = np.sort(np.random.default_rng(seed).permutation(numbers(COUNT))[: COUNT // 2])
        search = twins.DenseSearch(query_vector(seed), [segment], tail, alive, COUNT, COUNT, 0)
        found = search.nearest(5, rows)
        assert np.isin(found.rows, rows).all()
        assert len(found.rows) == 5
    assert 20 <= requests.total() <= 22


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": np.ones(3, np.float32)}, "query has 3 numbers; the index's have 16"),
        ({"tail": np.ones((5, 3), np.float32)}, "the tail has 3 dimensions, the query has 16"),
        ({"count": 299}, "count is 299; it must be from 300"),
        ({"count": 306}, "count is 306; it must be from 300, the rows of the segments, to 305"),
        ({"alive": np.ones(304, np.uint8)}, "alive has 304 entries"),
        ({"living": 306}, "306 of them 1; it must have at least 305"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(file, changed, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        searched(file, **changed)


@pytest.mark.parametrize("segment", [None, 3])
def test_a_segment_without_vectors_is_refused(file, segment):
    with pytest.raises(TypeError):
        searched(file, segments=[segment])


@pytest.mark.parametrize(
    ("items", "heads", "members", "message"),
    [
        (numbers(301), NONE, NONE, "items must be below 300"),
        (numbers(299), NONE, NONE, "without heads, 299 rows need as many items, not 300"),
        (numbers(300), numbers(300), numbers(300), "heads has 300 entries"),
        (numbers(300), numbers(301), numbers(299), "members has 299; they must have 301 and 300"),
        (numbers(300), numbers(301), numbers(300) + np.uint32(1), "members must be below 300"),
        (numbers(300), numbers(301)[::-1].copy(), numbers(300), "heads must ascend"),
        (numbers(300), numbers(301) + np.uint32(1), numbers(300), "heads must be at most 300"),
    ],
)
def test_rows_that_do_not_belong_to_the_graph_are_refused(file, items, heads, members, message):
    with pytest.raises(ValueError, match=message):
        SegmentVectors(Graph(file), items, heads, members, 10)


@pytest.mark.parametrize("rows", [[305], [3, 305], [9, 2**32 - 1]])
def test_eligible_rows_that_are_no_rows_are_refused_or_not_found(file, rows):
    """A graph search does not read them. A scan would, so it refuses them."""
    search = searched(file)
    found = search.nearest(5, np.array(rows, np.uint32)).rows.tolist()
    assert found == [row for row in rows if row < COUNT]
    with pytest.raises(IndexError, match=r"rows\[0\] is 304; rows must ascend, and be below 305"):
        search.nearest(5, np.array([304, 2, 303, 1, 302, 0], np.uint32), exact=True)


def test_a_count_of_zero_is_refused(file):
    with pytest.raises(ValueError, match="count is 0; it must be at least 1"):
        searched(file).nearest(0)


@pytest.mark.parametrize("rows", [[305], [2, 1], [1, 1]])
def test_scores_of_rows_that_do_not_ascend_or_do_not_exist_are_refused(file, rows):
    with pytest.raises(IndexError, match="rows must ascend, and be below 305"):
        searched(file).scores(np.array(rows, np.uint32))


@pytest.mark.parametrize("short", ["labels", "ancestors"])
def test_columns_of_another_length_than_the_view_are_refused(file, short):
    columns = {"labels": np.arange(305, dtype=np.uint64), "ancestors": numbers(305)}
    columns[short] = columns[short][:304]
    with pytest.raises(ValueError, match="entries; it must have"):
        searched(file).climb(5, **columns, aggregation=MAX)
