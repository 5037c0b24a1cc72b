"""`Graph` finds what hnswlib finds in the same file, and never reads outside of a damaged file.

A path is one way to compare vectors. With the path `float32`, `Graph` finds the same items as
hnswlib. All other paths follow links by codes of 8 bits a number. With them, the recall is at most
MAX_RECALL_LOSS lower than that of hnswlib, and scores are exact.
"""

import mmap
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import hnswlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag_fast import Graph, supported_paths
from tests import twins
from tests.support.documents.fakes import unit_vectors
from tests.support.parameters import slow
from tests.twins.graph import HEADER

HEADER_BYTES = HEADER.size
LINKS0_BYTES = 4 * (2 * 16 + 1)
PATHS = supported_paths()
ALL_PATHS = (*PATHS, "float32")
# The recall of a search by codes may be at most this much lower than the recall of hnswlib.
MAX_RECALL_LOSS = 0.001


@cache
def index_of(count: int, dimension: int, links: int = 16) -> tuple[hnswlib.Index, bytes]:
    """Returns an index of random vectors, and the bytes of its file. The last vector is item 0."""
    return index_over(unit_vectors(count, seed=count, dimension=dimension), links)


def index_over(vectors, links: int = 16) -> tuple[hnswlib.Index, bytes]:
    """Returns an index of vectors, and the bytes of its file. The last vector is item 0."""
    count, dimension = vectors.shape
    index = hnswlib.Index(space="ip", dim=dimension)
    index.init_index(max_elements=count, M=links, ef_construction=50)
    index.add_items(vectors, np.arange(count)[::-1], num_threads=1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        index.save_index(str(path))
        return index, path.read_bytes()


@contextmanager
def stored(file: bytes, source=None, splits=(), path=None):
    """Yields an open file, and a graph whose vectors stay in it. `splits` are ends of blocks."""
    with TemporaryFile(buffering=0) as opened:
        opened.write(file)
        bounds = [0, *sorted(splits), len(file)]
        blocks = [file[start:end] for start, end in pairwise(bounds)]
        yield (
            opened,
            Graph(blocks, path, size_bytes=len(file), descriptor=opened.fileno(), source=source),
        )


@pytest.fixture
def file() -> bytes:
    return index_of(300, 8)[1]


@given(
    st.sampled_from([1, 2, 20, 300]),
    st.sampled_from([2, 3, 8, 16, 17, 33, 100]),  # With one dimension, most scores are equal.
    st.sampled_from([2, 16]),
    st.integers(0, 1000),
    st.sampled_from([1, 2, 10, 64, 400]),
    st.sampled_from([1, 10, 64]),
    st.sampled_from(ALL_PATHS),
)
def test_a_graph_finds_what_its_twin_finds(count, dimension, links, seed, limit, ef, path):
    _, file = index_of(count, dimension, links)
    query = unit_vectors(1, seed + 5000, dimension)[0]
    items, scores = Graph(file, path).search(query, ef).nearest(limit)
    twin = twins.Graph(file, path)
    _, expected_scores = twin.search(query, ef).nearest(limit)
    assert items.dtype == np.uint32
    assert scores.dtype == np.float32
    assert np.allclose(scores, expected_scores, atol=1e-5)
    # The twin adds products in another order, so items with nearly equal scores may be exchanged.
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
def test_a_search_that_continues_finds_what_a_new_search_finds(
    count, dimension, links, seed, rounds, ef, path
):
    _, file = index_of(count, dimension, links)
    query = unit_vectors(1, seed + 5000, dimension)[0]
    search = Graph(file, path).search(query, ef)
    twin = twins.Graph(file, path).search(query, ef)
    for limit in rounds:
        items, scores = search.nearest(limit)
        _, expected_scores = twin.nearest(limit)
        assert np.allclose(scores, expected_scores, atol=1e-5)
        assert len(set(items.tolist())) == len(items)
        assert np.allclose(twins.Graph(file).scores(query, items), scores, atol=1e-5)


def test_searches_of_one_graph_do_not_disturb_each_other():
    """A search marks the elements that it has visited in an array that later searches reuse."""
    _, file = index_of(3000, 16)
    graph = Graph(file)
    queries = unit_vectors(20, seed=78)
    expected = [graph.search(query, 10).nearest(200)[0].tolist() for query in queries]
    searches = [graph.search(query, 10) for query in queries]
    for limit in (1, 20, 100):
        for search in searches:
            search.nearest(limit)
    assert [search.nearest(200)[0].tolist() for search in searches] == expected


@pytest.mark.parametrize("dimension", [16, 50])
@pytest.mark.parametrize("ef", [10, 64])
def test_a_graph_finds_what_hnswlib_finds(dimension, ef):
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
    [64, *slow(96, 384, 512, 1024)],
)
@pytest.mark.parametrize("kind", ["random", "clustered", "alike"])
def test_the_recall_of_a_search_by_codes_is_nearly_that_of_hnswlib(kind, dimension):
    """Some cases request as many items as `ef`, so that no candidate is spare.

    In the kind `alike`, two large numbers are the same in all vectors. The vectors of many models
    have such numbers.
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
    for limit, ef in ((10, 10), (10, 64), (50, 50), (50, 64), (200, 200)):
        index.set_ef(ef)
        nearest, _ = index.knn_query(queries, k=limit, num_threads=1)
        items = [graph.search(query, ef).nearest(limit)[0] for query in queries]
        assert (
            recall(items, exact[:, :limit]) >= recall(nearest, exact[:, :limit]) - MAX_RECALL_LOSS
        )


def as_unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def recall(items, nearest) -> float:
    """Returns the share of the items in `nearest` that are in `items`, row by row."""
    pairs = zip(items, nearest, strict=True)
    return sum(len(np.intersect1d(row, other)) for row, other in pairs) / nearest.size


@given(
    st.sampled_from([1, 2, 20, 300]),
    st.sampled_from([1, 2, 8, 31, 32, 33, 63, 64, 65, 127, 200, 513]),
    st.integers(0, 1000),
    st.sampled_from([1, 10, 64, 400]),
)
def test_every_path_with_codes_finds_the_same_items_and_scores_them_exactly(
    count, dimension, seed, limit
):
    """Scores have the same bits with each path and in an exact scan, and descend."""
    _, file = index_of(count, dimension)
    query = unit_vectors(1, seed + 5000, dimension)[0]
    items, scores = Graph(file, "plain").search(query, 10).nearest(limit)
    assert scores.tobytes() == Graph(file).scores(query, items).tobytes()
    assert (np.diff(scores) <= 0).all()
    for path in PATHS:
        again, again_scores = Graph(file, path).search(query, 10).nearest(limit)
        assert again.tolist() == items.tolist()
        assert again_scores.tobytes() == scores.tobytes()


def test_a_search_for_all_items_returns_them_in_the_order_of_a_scan():
    """Codes decide which links are followed; exact scores decide the order."""
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
    """Each vector is rounded to codes with its own scale. Tiny numbers have equal codes."""
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
def test_all_equal_vectors_are_found(path, dimension, value):
    vectors = np.full((30, dimension), value / np.sqrt(dimension), np.float32)
    _, file = index_over(vectors)
    items, scores = Graph(file, path).search(vectors[0], 64).nearest(30)
    assert sorted(items.tolist()) == list(range(30))
    assert np.allclose(scores, value, atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dimension", [1, 64, 516, 517, 4096, 20_000])
def test_the_largest_products_of_codes_do_not_overflow(path, dimension):
    """After an overflow, the opposite of the query would be nearer than the query."""
    query = np.full(dimension, 1 / np.sqrt(dimension), np.float32)
    for vectors in ([query, -query], [-query, query]):
        _, file = index_over(np.array(vectors))
        items, scores = Graph(file, path).search(query, 1).nearest(1)
        assert np.array_equal(vectors[1 - items[0]], query)
        assert np.allclose(scores, 1, atol=1e-5)


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_search_with_infinity_or_nan_returns_at_most_the_requested_number_of_items(
    file, path, value
):
    """Collections and queries with such numbers are refused before they reach a graph."""
    query = unit_vectors(1, seed=5, dimension=8)[0]
    query[3] = value
    search = Graph(file, path).search(query, 10)
    for limit in (1, 20, 300):
        assert len(search.nearest(limit)[0]) <= limit
    broken = bytearray(file)
    data_offset = HEADER.unpack_from(file)[5]
    struct.pack_into("<f", broken, HEADER_BYTES + data_offset, value)
    search = Graph(bytes(broken), path).search(unit_vectors(1, seed=5, dimension=8)[0], 10)
    for limit in (1, 20, 300):
        assert len(search.nearest(limit)[0]) <= limit


@pytest.mark.parametrize(("dimension", "row_bytes"), [(2, 64), (64, 64), (65, 128), (384, 384)])
def test_a_graph_reports_its_memory(dimension, row_bytes):
    """It has a copy of the file without header, and items of 4 bytes instead of 8."""
    _, file = index_of(300, dimension)
    vectors = 4 * dimension * 300
    links = len(file) - HEADER_BYTES - vectors - 4 * 300 + 12 * 300
    assert Graph(file, "float32").size_bytes == links + vectors
    assert Graph(file).size_bytes == links + vectors + 4 * 300 + row_bytes * 301
    with stored(file) as (_, graph):
        assert graph.size_bytes == links + 12 * 300 + row_bytes * 301


def test_an_unknown_path_is_refused(file):
    with pytest.raises(ValueError, match=r"path='neon': this processor has plain"):
        Graph(file, "neon")


@given(st.data(), st.sampled_from([1, 20, 300]), st.sampled_from([2, 16, 33]))
def test_scores_equal_those_of_the_twin(data, count, dimension):
    _, file = index_of(count, dimension)
    items = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=20)), np.uint32)
    query = unit_vectors(1, data.draw(st.integers(0, 100)), dimension)[0]
    scores = Graph(file).scores(query, items)
    assert (scores.dtype, scores.shape) == (np.float32, items.shape)
    assert np.allclose(scores, twins.Graph(file).scores(query, items), atol=1e-5)


def best_of(scores, count):
    """Returns the positions and the scores that `Graph.best` must return.

    The highest scores come first. Equal scores are in the order of their positions.
    """
    positions = np.lexsort((np.arange(len(scores)), -scores))[:count]
    return positions, scores[positions]


# Each kind of vectors is made from random vectors by a function.
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
def test_the_best_items_are_those_of_an_exact_scan(kind, count, dimension, seed, limit, path):
    """Codes exclude most of the other items, but scores have the same bits as in the scan."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal((count, dimension)).astype(np.float32)
    vectors = np.ascontiguousarray(KINDS[kind](numbers), np.float32)
    graph = Graph(index_over(vectors, links=4)[1], path)
    items = random.permutation(count).astype(np.uint32)[: 1 + int(random.integers(count))]
    for query in (vectors[seed % count], random.standard_normal(dimension).astype(np.float32)):
        positions, scores = graph.best(query, items, limit)
        right_positions, right_scores = best_of(graph.scores(query, items), limit)
        assert positions.tolist() == right_positions.tolist()
        assert scores.tolist() == right_scores.tolist()


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize("value", [0.0, 1e-38])
def test_the_best_items_are_found_if_all_codes_are_0(path, value):
    """The numbers are too small to be rounded, so all codes are 0. The last vector is item 0."""
    vectors = np.full((100, 8), value, np.float32)
    vectors[70] *= 3
    graph = Graph(index_over(vectors)[1], path)
    query, items = np.ones(8, np.float32), np.arange(100, dtype=np.uint32)
    assert graph.best(query, items, 2)[0].tolist() == ([29, 0] if value else [0, 1])


def test_no_items_have_no_best_items(file):
    positions, scores = Graph(file).best(np.ones(8, np.float32), np.empty(0, np.uint32), 3)
    assert (len(positions), len(scores)) == (0, 0)


@pytest.mark.parametrize("position", [0, 5, 9])
def test_an_item_that_does_not_exist_is_refused(file, position):
    items = np.arange(10, dtype=np.uint32)
    items[position] = 300
    with pytest.raises(IndexError, match=rf"items\[{position}\] is 300; it must be below 300"):
        Graph(file).scores(unit_vectors(1, 0, 8)[0], items)
    with pytest.raises(IndexError, match=rf"items\[{position}\] is 300; it must be below 300"):
        Graph(file).best(unit_vectors(1, 0, 8)[0], items, 1)


def test_many_threads_search_one_mapped_file_at_the_same_time(tmp_path):
    _, file = index_of(3000, 16)
    (tmp_path / "index").write_bytes(file)
    with (tmp_path / "index").open("rb") as opened:
        graph = Graph(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ))
    queries = unit_vectors(64, seed=77)
    expected = [graph.search(query, 64).nearest(10)[0].tolist() for query in queries]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            concurrent = threads.map(
                lambda query: graph.search(query, 64).nearest(10)[0].tolist(), queries
            )
            assert list(concurrent) == expected


def test_a_graph_can_be_searched_more_often_than_there_are_different_tags(file):
    """Each search marks visited elements with a tag of 16 bits, so a tag is used again later."""
    graph = Graph(file)
    query = unit_vectors(1, seed=5, dimension=8)[0]
    first = graph.search(query, 10).nearest(10)[0].tolist()
    for _ in range(70_000):
        graph.search(query, 1).nearest(1)
    assert graph.search(query, 10).nearest(10)[0].tolist() == first


def test_a_graph_reports_its_length_and_dimension(file):
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


# The following tests cover vectors that stay in the file.


@given(
    st.data(),
    st.sampled_from([1, 2, 20, 300]),
    st.sampled_from([1, 2, 3, 8, 33, 64]),
    st.integers(0, 1000),
)
def test_vectors_in_the_file_give_the_same_results_bit_by_bit(data, count, dimension, seed):
    """Blocks of the file may end anywhere: within the header, an element or the links."""
    _, file = index_of(count, dimension)
    splits = data.draw(st.lists(st.integers(0, len(file)), max_size=6))
    query = unit_vectors(1, seed + 5000, dimension)[0]
    items = np.random.default_rng(seed).permutation(count).astype(np.uint32)
    path = data.draw(st.sampled_from(PATHS))
    whole = Graph(file, path)
    with stored(file, splits=splits, path=path) as (_, graph):
        assert (len(graph), graph.dimension) == (count, dimension)
        expected, search = whole.search(query, 10), graph.search(query, 10)
        for limit in (1, 5, 40, 400):
            for right, found in zip(expected.nearest(limit), search.nearest(limit), strict=True):
                assert found.tobytes() == right.tobytes()
            for right, found in zip(
                whole.best(query, items, limit), graph.best(query, items, limit), strict=True
            ):
                assert found.tobytes() == right.tobytes()
        assert graph.scores(query, items).tobytes() == whole.scores(query, items).tobytes()


def test_a_search_reads_only_the_vectors_that_may_be_among_the_best():
    """A vector that is read is requested from the source, because the file is empty."""
    vectors = unit_vectors(2000, seed=1, dimension=64)
    requested = []

    def source(items, _problem):
        requested.append(len(items))
        return vectors[::-1][items]

    with stored(index_over(vectors)[1], source) as (opened, graph):
        opened.truncate(0)
        query = unit_vectors(1, seed=7, dimension=64)[0]
        items, scores = graph.search(query, 400).nearest(10)
        assert np.allclose(scores, vectors[::-1][items] @ query, atol=1e-6)
    assert len(requested) == 1
    assert 10 <= requested[0] < 100


DAMAGES = {
    "truncated": (lambda opened, size: opened.truncate(HEADER_BYTES), "lies beyond the end of"),
    "overwritten": (
        lambda opened, size: os.pwrite(opened.fileno(), os.urandom(size), 0),
        "differs from what was loaded",
    ),
    "zeros": (
        lambda opened, size: os.pwrite(opened.fileno(), bytes(size), 0),
        "differs from what was loaded",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("dimension", [3, 64])
def test_vectors_that_cannot_be_read_come_from_the_source(damage, dimension):
    vectors = unit_vectors(300, seed=2, dimension=dimension)
    file = index_over(vectors)[1]
    change, words = DAMAGES[damage]
    whole, problems = Graph(file), []

    def source(items, problem):
        problems.append(problem)
        return vectors[::-1][items]

    query, items = unit_vectors(1, 3, dimension)[0], np.arange(300, dtype=np.uint32)
    with stored(file, source) as (opened, graph):
        change(opened, len(file))
        found, right = graph.search(query, 50).nearest(20), whole.search(query, 50).nearest(20)
        assert [part.tobytes() for part in found] == [part.tobytes() for part in right]
        assert graph.scores(query, items).tobytes() == whole.scores(query, items).tobytes()
        assert graph.best(query, items, 5)[0].tolist() == whole.best(query, items, 5)[0].tolist()
    assert all(words in problem for problem in problems)
    assert problems[1].startswith("300 vectors cannot be used: that of item 299 ")


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_a_source_a_vector_that_cannot_be_read_is_an_error(file, damage):
    change, words = DAMAGES[damage]
    query = unit_vectors(1, 3, 8)[0]
    with stored(file) as (opened, graph):
        search = graph.search(query, 10)
        change(opened, len(file))
        with pytest.raises(OSError, match=words):
            search.nearest(5)
        opened.seek(0)
        opened.write(file)
        assert search.nearest(5)[0].tolist() == Graph(file).search(query, 10).nearest(5)[0].tolist()


def duplicates_of(descriptor: int) -> list[int]:
    """Returns the other descriptors of the same open file."""
    numbers = []
    for number in {int(entry.name) for entry in Path("/proc/self/fd").iterdir()} - {descriptor}:
        with suppress(OSError):
            if os.path.samestat(os.fstat(number), os.fstat(descriptor)):
                numbers.append(number)
    return numbers


def test_an_error_of_the_operating_system_is_described(file):
    """The descriptor of the graph becomes that of a folder, which cannot be read like a file."""
    with stored(file) as (opened, graph):
        (graph_file,) = duplicates_of(opened.fileno())
        folder = os.open("/", os.O_RDONLY)
        os.dup2(folder, graph_file)
        os.close(folder)
        with pytest.raises(OSError, match=r"2 vectors .* item 7 cannot be read: Is a directory"):
            graph.scores(np.ones(8, np.float32), np.array([3, 7], np.uint32))


def test_one_changed_bit_of_each_vector_is_noticed(file):
    """The checksum of a vector has a key, so no change can be chosen that it would miss."""
    offset = HEADER_BYTES + HEADER.unpack_from(file)[5]
    step = HEADER.unpack_from(file)[3]
    items = np.arange(300, dtype=np.uint32)
    with stored(file) as (opened, graph):
        for element in range(0, 300, 7):
            at = offset + element * step + element % 32
            os.pwrite(opened.fileno(), bytes([file[at] ^ 1 << element % 8]), at)
            with pytest.raises(OSError, match=f"that of item {299 - element} differs"):
                graph.scores(np.ones(8, np.float32), items)
            os.pwrite(opened.fileno(), file[at : at + 1], at)


def test_a_vector_that_the_source_does_not_know_is_scored_by_its_codes(file):
    query, items = unit_vectors(1, 3, 8)[0], np.arange(300, dtype=np.uint32)
    with stored(file, lambda items, _: np.full((len(items), 8), np.nan, np.float32)) as (
        opened,
        graph,
    ):
        opened.truncate(0)
        scores = graph.scores(query, items)
    assert np.allclose(scores, Graph(file).scores(query, items), atol=0.02)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (lambda items, _: np.zeros((len(items) + 1, 8)), ValueError),
        (lambda items, _: items[10**9], IndexError),
    ],
)
def test_an_error_of_the_source_ends_the_search(file, source, error):
    with stored(file, source) as (opened, graph):
        opened.truncate(0)
        with pytest.raises(error):
            graph.search(np.ones(8, np.float32), 10).nearest(5)


def open_files() -> int:
    """Returns how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_graph_keeps_its_file_open_until_it_is_freed(file):
    """The file may be removed, and the descriptor that was passed may be closed."""
    query = unit_vectors(1, 3, 8)[0]
    expected = Graph(file).search(query, 10).nearest(5)[0].tolist()
    before = open_files()
    with stored(file) as (_, graph):
        pass
    assert open_files() == before + 1
    assert graph.search(query, 10).nearest(5)[0].tolist() == expected
    del graph
    assert open_files() == before


def test_blocks_that_differ_from_the_file_are_refused(file):
    """The mean of the vectors was computed from the file, which must not change meanwhile."""
    other = bytearray(file)
    other[HEADER_BYTES + HEADER.unpack_from(file)[5] + 3] ^= 1
    with TemporaryFile(buffering=0) as opened:
        opened.write(other)
        with pytest.raises(ValueError, match="the vectors of the file changed while it was read"):
            Graph([file], size_bytes=len(file), descriptor=opened.fileno())
        opened.truncate(len(file) // 2)
        with pytest.raises(ValueError, match="the file became shorter while it was read"):
            Graph([file], size_bytes=len(file), descriptor=opened.fileno())


@pytest.mark.parametrize("size_bytes", [0, 50, 95])
def test_a_size_without_space_for_a_header_is_refused(file, size_bytes):
    with pytest.raises(ValueError, match="too few for an index"):
        Graph([file], size_bytes=size_bytes)


@pytest.mark.parametrize("blocks", [[], [b""], [b"x" * 50]])
def test_blocks_that_end_too_early_are_refused(file, blocks):
    with pytest.raises(ValueError, match=f"instead of {len(file)}"):
        Graph(blocks, size_bytes=len(file))


def test_more_bytes_than_announced_are_refused(file):
    with pytest.raises(ValueError, match="the index has more than"):
        Graph([file, b"x"], size_bytes=len(file))


@pytest.mark.parametrize("descriptor", [-1, 10**6])
def test_a_descriptor_that_is_not_open_is_refused(file, descriptor):
    with pytest.raises(OSError, match="Bad file descriptor"):
        Graph([file], size_bytes=len(file), descriptor=descriptor)


def test_vectors_that_are_compared_to_follow_links_cannot_stay_in_the_file(file):
    with pytest.raises(ValueError, match="cannot be compared"), stored(file, path="float32"):
        pass


# The following tests cover files that are damaged or are not an index.


@pytest.mark.parametrize("content", [b"", b"short", b"\0" * 96, b"\xff" * 96, b"x" * 5000])
def test_bytes_that_are_not_an_index_are_refused(content):
    with pytest.raises(ValueError, match=r"too few|header"):
        Graph(content)


@pytest.mark.parametrize("label_offset", [2**64 - 4, 2**64 - 8, 2**63, 84])
def test_an_element_that_is_longer_than_the_file_is_refused(label_offset):
    """In 64 bits, some of these lengths of an element overflow to 4 bytes or to 0."""
    element_bytes = (label_offset + 8) % 2**64
    header = (0, 1, 1, element_bytes, label_offset, 8, 0, 0, 1, 1, 16, 0.5, 0)
    with pytest.raises(ValueError, match="the header of an index"):
        Graph(HEADER.pack(*header) + bytes(8))


@pytest.mark.parametrize("cut", [1, 4, 1000, 20_000])
def test_a_truncated_file_is_refused(file, cut):
    with pytest.raises(ValueError, match=r"its links end at byte|header"):
        Graph(file[:-cut])


def test_a_file_with_bytes_after_its_end_is_refused(file):
    with pytest.raises(ValueError, match="its links end at byte"):
        Graph(file + b"\0\0\0\0")


def test_a_link_to_an_element_that_does_not_exist_is_refused(file):
    broken = bytearray(file)
    struct.pack_into("<I", broken, HEADER_BYTES + 4, 300)
    with pytest.raises(ValueError, match="the links of the index are damaged"):
        Graph(bytes(broken))


@pytest.mark.parametrize("label", [0, 300, 1 << 40])
def test_missing_or_repeated_item_numbers_are_refused(file, label):
    broken = bytearray(file)
    label_offset = HEADER.unpack_from(file)[4]
    struct.pack_into("<Q", broken, HEADER_BYTES + label_offset, label)
    with pytest.raises(ValueError, match="items of the index must be numbered from 0 to 299"):
        Graph(bytes(broken))


def test_more_links_than_the_index_allows_are_refused(file):
    broken = bytearray(file)
    struct.pack_into("<I", broken, HEADER_BYTES, 33)
    with pytest.raises(ValueError, match="the links of the index are damaged"):
        Graph(bytes(broken))


@given(st.data())
def test_a_search_of_a_damaged_file_ends_and_reads_nothing_outside_of_it(data):
    """Some words of 32 bits are changed. The file is refused, or a search of it ends."""
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
