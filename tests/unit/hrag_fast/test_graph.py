"""The graph: what hnswlib would find in its own file, and no way out of that file.

On the path `float32` it finds the same as hnswlib, item by item. On the other paths, which
follow links by codes, it finds no less, and its scores are exact.
"""

import mmap
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import hnswlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag_fast import Graph, _reference, supported_paths
from tests.support.documents.fakes import unit_vectors

HEADER_BYTES = _reference.HEADER.size
LINKS0_BYTES = 4 * (2 * 16 + 1)
PATHS = supported_paths()
ALL_PATHS = (*PATHS, "float32")
MOST_LOST = 0.001  # Of recall, by following links by codes.


@cache
def index_of(count: int, dimension: int, links: int = 16) -> tuple[hnswlib.Index, bytes]:
    """An index of random vectors, and its file; its items are numbered backwards."""
    return index_over(unit_vectors(count, seed=count, dimension=dimension), links)


def index_over(vectors, links: int = 16) -> tuple[hnswlib.Index, bytes]:
    """An index of these vectors, from the last to the first, and its file."""
    count, dimension = vectors.shape
    index = hnswlib.Index(space="ip", dim=dimension)
    index.init_index(max_elements=count, M=links, ef_construction=50)
    index.add_items(vectors, np.arange(count)[::-1], num_threads=1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        index.save_index(str(path))
        return index, path.read_bytes()


@pytest.fixture
def file() -> bytes:
    return index_of(300, 8)[1]


@given(
    st.sampled_from([1, 2, 20, 300]),
    st.sampled_from([2, 3, 8, 16, 17, 33, 100]),  # In one dimension all are equal.
    st.sampled_from([2, 16]),
    st.integers(0, 1000),
    st.sampled_from([1, 2, 10, 64, 400]),
    st.sampled_from([1, 10, 64]),
    st.sampled_from(ALL_PATHS),
)
def test_it_finds_what_its_twin_finds(count, dimension, links, seed, wanted, ef, path):
    _, file = index_of(count, dimension, links)
    query = unit_vectors(1, seed + 5000, dimension)[0]
    items, scores = Graph(file, path).search(query, ef).nearest(wanted)
    twin = _reference.Graph(file, path)
    _, expected_scores = twin.search(query, ef).nearest(wanted)
    assert items.dtype == np.uint32
    assert scores.dtype == np.float32
    assert np.allclose(scores, expected_scores, atol=1e-5)
    # Both add in another order, so items whose scores are all but equal may change places.
    assert len(set(items.tolist())) == len(items)
    assert np.allclose(twin.scores(query, items), scores, atol=1e-5)


@given(
    st.sampled_from([1, 2, 20, 300]),
    st.sampled_from([2, 8, 33]),
    st.sampled_from([2, 16]),
    st.integers(0, 1000),
    st.lists(st.sampled_from([0, 1, 2, 10, 40, 160, 400]), min_size=1, max_size=4),
    st.sampled_from([1, 10, 64]),
    st.sampled_from(ALL_PATHS),
)
def test_a_search_that_goes_on_finds_what_a_new_one_finds(
    count, dimension, links, seed, rounds, ef, path
):
    _, file = index_of(count, dimension, links)
    query = unit_vectors(1, seed + 5000, dimension)[0]
    search = Graph(file, path).search(query, ef)
    twin = _reference.Graph(file, path).search(query, ef)
    for wanted in rounds:
        items, scores = search.nearest(wanted)
        _, expected_scores = twin.nearest(wanted)
        assert np.allclose(scores, expected_scores, atol=1e-5)
        assert len(set(items.tolist())) == len(items)
        assert np.allclose(_reference.Graph(file).scores(query, items), scores, atol=1e-5)


def test_a_search_that_goes_on_disturbs_no_other():
    """Searches of one graph mark what they have visited; each has marks of its own."""
    _, file = index_of(3000, 16)
    graph = Graph(file)
    queries = unit_vectors(20, seed=78)
    expected = [graph.search(query, 10).nearest(200)[0].tolist() for query in queries]
    searches = [graph.search(query, 10) for query in queries]
    for wanted in (1, 20, 100):
        for search in searches:
            search.nearest(wanted)
    assert [search.nearest(200)[0].tolist() for search in searches] == expected


@pytest.mark.parametrize("dimension", [16, 50])
@pytest.mark.parametrize("ef", [10, 64])
def test_it_finds_what_hnswlib_finds(dimension, ef):
    index, file = index_of(3000, dimension)
    index.set_ef(ef)
    graph = Graph(file, "float32")
    for seed in range(50):
        query = unit_vectors(1, seed + 9000, dimension)[0]
        items, scores = graph.search(query, ef).nearest(10)
        expected, distances = index.knn_query(query, k=10, num_threads=1)
        assert items.tolist() == expected[0].tolist()
        assert np.allclose(scores, 1 - distances[0], atol=1e-5)


@pytest.mark.parametrize(
    "dimension",
    [64, 96, 384, *(pytest.param(each, marks=pytest.mark.slow) for each in (512, 1024))],
)
@pytest.mark.parametrize("kind", ["random", "clustered", "alike"])
def test_codes_find_as_many_of_the_nearest_as_hnswlib_does(kind, dimension):
    """Also where ef is no larger than what is wanted, and where a few large numbers are the same
    in all vectors, as in those of many models.
    """
    vectors = unit_vectors(2000, seed=1, dimension=dimension)
    if kind == "clustered":
        vectors = as_unit(vectors + unit_vectors(20, 2, dimension)[np.arange(2000) % 20])
    queries = as_unit(vectors + unit_vectors(2000, seed=3, dimension=dimension))
    if kind == "alike":
        large = np.where(np.arange(dimension) < 2, 2, 0)
        vectors, queries = as_unit(vectors + large), as_unit(queries + large)
    exact = np.argsort(-(queries @ vectors[::-1].T), axis=1)
    index, file = index_over(vectors)
    graph = Graph(file)
    for wanted, ef in ((10, 10), (10, 64), (50, 50), (50, 64), (200, 200)):
        index.set_ef(ef)
        nearest, _ = index.knn_query(queries, k=wanted, num_threads=1)
        found = [graph.search(query, ef).nearest(wanted)[0] for query in queries]
        recall = shared(found, exact[:, :wanted])
        assert recall >= shared(nearest, exact[:, :wanted]) - MOST_LOST


def as_unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def shared(found, nearest) -> float:
    """The share of the items in `nearest` that are in `found`, row by row."""
    pairs = zip(found, nearest, strict=True)
    return sum(len(np.intersect1d(row, other)) for row, other in pairs) / nearest.size


@given(
    st.sampled_from([1, 2, 20, 300]),
    st.sampled_from([1, 2, 8, 31, 32, 33, 63, 64, 65, 127, 200, 513]),
    st.integers(0, 1000),
    st.sampled_from([1, 10, 64, 400]),
)
def test_every_path_finds_the_same_and_scores_it_exactly(count, dimension, seed, wanted):
    """To the bit: the best first of what was found."""
    _, file = index_of(count, dimension)
    query = unit_vectors(1, seed + 5000, dimension)[0]
    items, scores = Graph(file, "plain").search(query, 10).nearest(wanted)
    assert scores.tobytes() == Graph(file).scores(query, items).tobytes()
    assert (np.diff(scores) <= 0).all()
    for path in PATHS:
        again, again_scores = Graph(file, path).search(query, 10).nearest(wanted)
        assert again.tolist() == items.tolist()
        assert again_scores.tobytes() == scores.tobytes()


def test_what_is_found_first_comes_first_of_all_that_was_found():
    """Scores are exact, so the best of a deeper search are in the order of a scan."""
    _, file = index_of(3000, 16)
    graph = Graph(file)
    for query in unit_vectors(20, seed=8):
        items, scores = graph.search(query, 10).nearest(3000)
        every = graph.scores(query, np.arange(3000, dtype=np.uint32))
        assert sorted(items.tolist()) == list(range(3000))
        assert scores.tolist() == np.sort(every)[::-1].tolist()


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-3, 1.0, 1e3, 1e15])
def test_vectors_of_any_length_are_found(path, scale):
    """Each vector is rounded by a scale of its own; those that are all but zeros are equal."""
    drawn = unit_vectors(200, seed=4, dimension=40)
    lengths = np.random.default_rng(5).uniform(0.5, 2, (200, 1))
    vectors = (drawn * lengths * scale).astype(np.float32)
    _, file = index_over(vectors)
    graph = Graph(file, path)
    for query in unit_vectors(10, seed=6, dimension=40):
        items, scores = graph.search(query, 200).nearest(5)
        exact = vectors[::-1] @ query
        assert np.allclose(scores, np.sort(exact)[::-1][:5], rtol=1e-5, atol=1e-45)
        assert np.allclose(scores, exact[items], rtol=1e-5, atol=1e-45)


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize("dimension", [1, 15, 16, 100])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_vectors_are_found_all(path, dimension, value):
    vectors = np.full((30, dimension), value / np.sqrt(dimension), np.float32)
    _, file = index_over(vectors)
    items, scores = Graph(file, path).search(vectors[0], 64).nearest(30)
    assert sorted(items.tolist()) == list(range(30))
    assert np.allclose(scores, value, atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dimension", [1, 64, 516, 517, 4096, 20_000])
def test_the_largest_products_of_codes_do_not_overflow(path, dimension):
    """Else the opposite of the query would be nearer than the query itself."""
    query = np.full(dimension, 1 / np.sqrt(dimension), np.float32)
    for vectors in ([query, -query], [-query, query]):
        _, file = index_over(np.array(vectors))
        items, scores = Graph(file, path).search(query, 1).nearest(1)
        assert np.array_equal(vectors[1 - items[0]], query)
        assert np.allclose(scores, 1, atol=1e-5)


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_do_no_harm(file, path, value):
    """Collections and queries with such numbers are refused before."""
    query = unit_vectors(1, seed=5, dimension=8)[0]
    query[3] = value
    search = Graph(file, path).search(query, 10)
    for wanted in (1, 20, 300):
        assert len(search.nearest(wanted)[0]) <= wanted
    broken = bytearray(file)
    data_offset = _reference.HEADER.unpack_from(file)[5]
    struct.pack_into("<f", broken, HEADER_BYTES + data_offset, value)
    search = Graph(bytes(broken), path).search(unit_vectors(1, seed=5, dimension=8)[0], 10)
    for wanted in (1, 20, 300):
        assert len(search.nearest(wanted)[0]) <= wanted


@pytest.mark.parametrize(("dimension", "row_bytes"), [(2, 64), (64, 64), (65, 128), (384, 384)])
def test_it_says_what_it_takes_beside_the_file(dimension, row_bytes):
    _, file = index_of(300, dimension)
    assert Graph(file, "float32").size_bytes == 12 * 300
    assert Graph(file).size_bytes == 16 * 300 + row_bytes * 301


def test_a_path_that_is_none_is_refused(file):
    with pytest.raises(ValueError, match=r"path='neon': this processor has plain"):
        Graph(file, "neon")


@given(st.data(), st.sampled_from([1, 20, 300]), st.sampled_from([2, 16, 33]))
def test_it_scores_as_its_twin_does(data, count, dimension):
    _, file = index_of(count, dimension)
    items = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=20)), np.uint32)
    query = unit_vectors(1, data.draw(st.integers(0, 100)), dimension)[0]
    scores = Graph(file).scores(query, items)
    assert (scores.dtype, scores.shape) == (np.float32, items.shape)
    assert np.allclose(scores, _reference.Graph(file).scores(query, items), atol=1e-5)


def best_of(scores, count):
    """The right answer of `Graph.best`: the highest scores, of equal ones the first."""
    places = np.lexsort((np.arange(len(scores)), -scores))[:count]
    return places, scores[places]


KINDS = {
    "unit": as_unit,
    "long": lambda vectors: 1e15 * vectors,
    "shifted": lambda vectors: as_unit(vectors + 3),
    "nearly equal": lambda vectors: np.float32(1) + np.float32(1e-7) * vectors,
    "repeated": lambda vectors: as_unit(np.repeat(vectors, 3, axis=0)[: len(vectors)]),
    "one is odd": lambda vectors: np.concatenate([1e4 * vectors[:1], vectors[1:]]),
}


@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from([1, 30, 400]),
    st.sampled_from([1, 2, 16, 65, 384]),
    st.integers(0, 1000),
    st.sampled_from([0, 1, 5, 40, 500]),
    st.sampled_from(ALL_PATHS),
)
def test_the_best_are_those_of_all_scores(kind, count, dimension, seed, wanted, path):
    """To the bit, though codes rule most of the others out."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal((count, dimension)).astype(np.float32)
    vectors = np.ascontiguousarray(KINDS[kind](numbers), np.float32)
    graph = Graph(index_over(vectors, links=4)[1], path)
    items = random.permutation(count).astype(np.uint32)[: 1 + int(random.integers(count))]
    for query in (vectors[seed % count], random.standard_normal(dimension).astype(np.float32)):
        places, scores = graph.best(query, items, wanted)
        right_places, right_scores = best_of(graph.scores(query, items), wanted)
        assert places.tolist() == right_places.tolist()
        assert scores.tolist() == right_scores.tolist()


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize("value", [0.0, 1e-38])
def test_the_best_of_vectors_without_codes_are_found(path, value):
    """Too small to be rounded: codes say nothing of them. The last vector is item 0."""
    vectors = np.full((100, 8), value, np.float32)
    vectors[70] *= 3
    graph = Graph(index_over(vectors)[1], path)
    query, items = np.ones(8, np.float32), np.arange(100, dtype=np.uint32)
    assert graph.best(query, items, 2)[0].tolist() == ([29, 0] if value else [0, 1])


def test_the_best_of_no_item_are_none(file):
    places, scores = Graph(file).best(np.ones(8, np.float32), np.empty(0, np.uint32), 3)
    assert (len(places), len(scores)) == (0, 0)


@pytest.mark.parametrize("position", [0, 5, 9])
def test_an_item_that_is_not_there_is_refused(file, position):
    items = np.arange(10, dtype=np.uint32)
    items[position] = 300
    with pytest.raises(IndexError, match=rf"items\[{position}\] is 300; it must be below 300"):
        Graph(file).scores(unit_vectors(1, 0, 8)[0], items)
    with pytest.raises(IndexError, match=rf"items\[{position}\] is 300; it must be below 300"):
        Graph(file).best(unit_vectors(1, 0, 8)[0], items, 1)


def test_many_threads_search_one_mapped_file_at_once(tmp_path):
    _, file = index_of(3000, 16)
    (tmp_path / "index").write_bytes(file)
    with (tmp_path / "index").open("rb") as opened:
        graph = Graph(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ))
    queries = unit_vectors(64, seed=77)
    alone = [graph.search(query, 64).nearest(10)[0].tolist() for query in queries]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            together = threads.map(
                lambda query: graph.search(query, 64).nearest(10)[0].tolist(), queries
            )
            assert list(together) == alone


def test_it_can_be_searched_more_often_than_its_tags_last(file):
    """Searches are numbered by 16 bits, which overflow."""
    graph = Graph(file)
    query = unit_vectors(1, seed=5, dimension=8)[0]
    first = graph.search(query, 10).nearest(10)[0].tolist()
    for _ in range(70_000):
        graph.search(query, 1).nearest(1)
    assert graph.search(query, 10).nearest(10)[0].tolist() == first


def test_it_says_what_it_holds(file):
    graph = Graph(file)
    assert (len(graph), graph.dimension) == (300, 8)
    query = unit_vectors(1, 0, 8)[0]
    assert sorted(graph.search(query, 1).nearest(1000)[0].tolist()) == list(range(300))
    assert len(graph.search(query, 10).nearest(0)[0]) == 0


@pytest.mark.parametrize("length", [0, 7, 9])
def test_a_query_of_another_dimension_is_refused(file, length):
    with pytest.raises(ValueError, match=f"query has {length} numbers; the index's have 8"):
        Graph(file).search(np.zeros(length, np.float32), 64).nearest(10)
    with pytest.raises(ValueError, match=f"query has {length} numbers; the index's have 8"):
        Graph(file).scores(np.zeros(length, np.float32), np.zeros(1, np.uint32))
    with pytest.raises(ValueError, match=f"query has {length} numbers; the index's have 8"):
        Graph(file).best(np.zeros(length, np.float32), np.zeros(1, np.uint32), 1)


# Files that are none


@pytest.mark.parametrize("content", [b"", b"short", b"\0" * 96, b"\xff" * 96, b"x" * 5000])
def test_nonsense_is_refused(content):
    with pytest.raises(ValueError, match=r"too few|header"):
        Graph(content)


@pytest.mark.parametrize("label_offset", [2**64 - 4, 2**64 - 8, 2**63, 84])
def test_an_element_that_is_longer_than_the_file_is_refused(label_offset):
    """Also one whose length overflows to 4 bytes, or to none."""
    element_bytes = (label_offset + 8) % 2**64
    header = (0, 1, 1, element_bytes, label_offset, 8, 0, 0, 1, 1, 16, 0.5, 0)
    with pytest.raises(ValueError, match="the header"):
        Graph(_reference.HEADER.pack(*header) + bytes(8))


@pytest.mark.parametrize("cut", [1, 4, 1000, 20_000])
def test_a_truncated_file_is_refused(file, cut):
    with pytest.raises(ValueError, match=r"links take|header"):
        Graph(file[:-cut])


def test_a_file_with_something_behind_it_is_refused(file):
    with pytest.raises(ValueError, match="links take"):
        Graph(file + b"\0\0\0\0")


def test_a_link_that_leads_out_is_refused(file):
    broken = bytearray(file)
    struct.pack_into("<I", broken, HEADER_BYTES + 4, 300)
    with pytest.raises(ValueError, match="leads out"):
        Graph(bytes(broken))


@pytest.mark.parametrize("label", [0, 300, 1 << 40])
def test_items_that_are_not_numbered_one_by_one_are_refused(file, label):
    broken = bytearray(file)
    label_offset = _reference.HEADER.unpack_from(file)[4]
    struct.pack_into("<Q", broken, HEADER_BYTES + label_offset, label)
    with pytest.raises(ValueError, match="not numbered from 0 to 299"):
        Graph(bytes(broken))


def test_more_links_than_the_index_allows_are_refused(file):
    broken = bytearray(file)
    struct.pack_into("<I", broken, HEADER_BYTES, 33)
    with pytest.raises(ValueError, match="leads out"):
        Graph(bytes(broken))


@given(st.data())
def test_whatever_a_file_says_a_search_stays_inside(data):
    """A file with any words changed is refused, or searched to some end."""
    _, whole = index_of(20, 3, 2)
    file = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        offset = data.draw(st.integers(0, len(file) // 4 - 1))
        word = data.draw(st.sampled_from([0, 1, 19, 20, 0xFFFF, 0xFFFFFFFF]) | st.integers(0, 40))
        struct.pack_into("<I", file, 4 * offset, word)
    try:
        graph = Graph(bytes(file))
    except ValueError:
        return
    items, scores = graph.search(np.ones(graph.dimension, np.float32), 5).nearest(5)
    assert len(items) == len(scores) <= 5
    assert len(graph.scores(np.ones(graph.dimension, np.float32), items)) == len(items)
