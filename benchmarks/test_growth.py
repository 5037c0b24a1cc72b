"""Measures the latency of a search in collections of 10,000, 100,000 and a million leaves.

All sizes have texts, topics and queries of the same kind, and all leaves of a size are in one
segment. Every passage has been read once before anything is timed.

Sizes are measured in turn, each with a slice of the queries. So a slow period of the machine
affects all of them, while the processor's caches contain the data of one size, as in a service. The
raw index (hnswlib alone) of each size is measured too, because searching a larger graph takes more
time by itself.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import hnswlib
import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import corpus
from benchmarks.report import Report, Samples, measured, ratio, seconds
from hrag.cli.processes import RETRIEVER
from hrag.client.calls import channel_options
from hrag.models.embedding import Vectors
from hrag.types import DEFAULT_LIMIT, SearchMode, SearchQuery
from hrag.v1 import retriever_pb2 as pb
from hrag.values.deadline import NEVER
from hrag.wire.retriever import search_request
from retriever_svc.search_pipeline import Search as Pipeline
from tests.endurance.processes import MB, memory_of
from tests.support.servers.processes import Process, started

SIZES = (10_000, 100_000)
FULL_SIZES = (*SIZES, 1_000_000)
DIMENSION = 384
# There is no collection of a million vectors of 1536 dimensions: it would take 6 GB three times,
# and an hour to index.
LONG_DIMENSION = 1536
LEAVES_EACH = 100
SEED = 81
QUERIES = 1000
SLICE = 50
# A stable p99 needs this many rounds.
TARGET_ROUNDS = 2000
RECALL_QUERIES = 200
RESTARTS = 3
MAX_GROWTH = 2.0
MIN_RECALL = 0.99
MAX_CLIMB_MS = 0.1
MODES = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)
WHOLE, SEARCH, CLIMB, FETCH = range(4)
METHOD = "/hrag.v1.RetrieverService/Search"

pytestmark = pytest.mark.timeout(3600)

Took = tuple[float, float, float, float]
"""The milliseconds of a search: the caller's round trip, then the stages of the service."""
Search = Callable[[SearchQuery], Took]
Measure = Callable[[int], Took]
"""A function from the number of a query to the milliseconds of its search."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The maximum number of passages of a search (`limit`) and its number of candidates."""

    limit: int
    candidates: int

    @property
    def key(self) -> str:
        return f"limit_{self.limit}_k_{self.candidates}"

    def __str__(self) -> str:
        return f"limit {self.limit}, k = {self.candidates}"


DEFAULT = Extent(DEFAULT_LIMIT, corpus.DENSE_CANDIDATES)
# The target on the climb is for searches of this extent.
CLIMB_TARGET = Extent(DEFAULT_LIMIT, 100)
LARGEST = Extent(20, 200)
MEMORY = (
    ("anonymous", "anonymous memory"),
    ("resident", "resident set"),
)
RESTART_STAGES = (("serving", "serving"), ("first_response", "the first response"))
EXTENTS = (DEFAULT, Extent(5, 200), Extent(20, 50), LARGEST)


@dataclass(frozen=True, slots=True)
class Growth:
    """Collections of one dimension, ordered by size.

    `name` is the prefix of the keys of their figures.
    """

    name: str
    dimension: int
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Size:
    """A store with one segment, and queries near its leaves."""

    folder: Path
    growth: Growth
    planned: int
    # The count of leaves: a few more than planned, because documents are stored whole.
    leaves: int
    queries: Vectors
    recalls: NDArray[np.float64]

    @property
    def vector_bytes(self) -> int:
        return self.leaves * self.queries[0].nbytes

    @property
    def key(self) -> str:
        return f"{self.growth.name}.{self.growth.dimension}.{self.planned}"

    def __str__(self) -> str:
        return f"{self.leaves:,} x {self.growth.dimension}"

    def measures(self, search: Search, extent: Extent) -> list[Measure]:
        """Returns one measure for each mode."""

        def measure(mode: SearchMode) -> Measure:
            def search_once(number: int) -> Took:
                query = corpus.dense_query(self.queries[number], mode)
                return search(replace(query, limit=extent.limit, candidates=extent.candidates))

            return search_once

        return [measure(mode) for mode in MODES]


@pytest.fixture(
    scope="module",
    params=[
        Growth("growth", DIMENSION, SIZES),
        pytest.param(Growth("growth_full", DIMENSION, FULL_SIZES), marks=pytest.mark.full),
        pytest.param(Growth("growth", LONG_DIMENSION, SIZES), marks=pytest.mark.full),
    ],
    ids=lambda growth: f"{growth.name}-{growth.dimension}",
)
def sizes(request: pytest.FixtureRequest) -> Iterator[list[Size]]:
    growth: Growth = request.param
    with TemporaryDirectory() as name:
        yield [filled(Path(name) / str(planned), growth, planned) for planned in growth.leaves]


def filled(folder: Path, growth: Growth, planned: int) -> Size:
    """Creates the store of a size and measures the recall of its searches."""
    vectors = corpus.fill(folder, planned, LEAVES_EACH, growth.dimension, SEED, sealed=True)
    queries = corpus.queries_near(vectors, QUERIES, SEED + 1)
    recalls = corpus.recalls_at_10(folder, vectors, queries[:RECALL_QUERIES], LEAVES_EACH)
    return Size(folder, growth, planned, len(vectors), queries, recalls)


def in_process(pipeline: Pipeline) -> Search:
    """Returns a search in process."""

    def search(query: SearchQuery) -> Took:
        began = time.perf_counter()
        result = pipeline.encoded(query, NEVER)
        return took(time.perf_counter() - began, result.timings)

    return search


def through_grpc(channel: grpc.Channel) -> Search:
    """Returns a search through gRPC. Encoding requests and decoding replies is not timed."""
    send = channel.unary_unary(METHOD)

    def search(query: SearchQuery) -> Took:
        request = search_request(query).SerializeToString()
        began = time.perf_counter()
        reply = send(request, timeout=30)
        ended = time.perf_counter()
        return took(ended - began, pb.SearchResponse.FromString(reply).timings)

    return search


def took(whole_s: float, timings: Any) -> Took:
    """Returns the milliseconds of a search: the whole, then the stages that `timings` has."""
    stages = (timings.search_us, timings.climb_us, timings.fetch_us)
    return (whole_s * 1e3, *(stage_us / 1e3 for stage_us in stages))


def raw_index(index: hnswlib.Index, size: Size) -> Measure:
    """Returns the measure of the raw index. Its ANN search is the whole search."""

    def measure(number: int) -> Took:
        query = size.queries[number]
        ms = 1e3 * seconds(lambda: index.knn_query(query, k=DEFAULT.candidates, num_threads=1))
        return ms, ms, 0, 0

    return measure


def in_turn(measures: Sequence[Sequence[Measure]], rounds: int) -> Samples:
    """Calls the measures of all sizes; returns `float64[sizes, measures, rounds, 4]`.

    The sizes take turns after each slice of rounds, and the measures of one size take turns in each
    round. Each time their order is reversed. All measures have different queries in a round,
    because an equal query would read nodes that are already in the processor's caches.
    """
    samples = np.empty((len(measures), len(measures[0]), rounds, 4))
    for start in range(0, rounds, SLICE):
        for size in alternating(len(measures), start // SLICE):
            for number in range(start, start + SLICE):
                for at in alternating(len(measures[size]), number):
                    query = number + at * QUERIES // len(measures[size])
                    samples[size, at, number] = measures[size][at](query % QUERIES)
    return samples


def alternating(count: int, number: int) -> Sequence[int]:
    """Returns the numbers below `count`: ascending if `number` is even, descending if it is odd."""
    return range(count)[:: -1 if number % 2 else 1]


@pytest.fixture
def searches(sizes: list[Size]) -> Iterator[list[Search]]:
    """The searches in process, one for each size."""
    with ExitStack() as closing:
        readers = [closing.enter_context(corpus.reading(size.folder)) for size in sizes]
        dimension = sizes[0].growth.dimension
        yield [in_process(corpus.search_over(reader, dimension)) for reader in readers]


def test_raw_index(sizes: list[Size], report: Report) -> None:
    measures = [[raw_index(corpus.raw_index(size.folder), size)] for size in sizes]
    in_turn(measures, QUERIES)  # This is the warm-up.
    took = in_turn(measures, QUERIES)[:, 0, :, WHOLE]
    record_growth(report, "raw_index", "raw index", sizes, took)


def test_recall(sizes: list[Size], report: Report) -> None:
    """A missed target does not fail the run: unrelated topics are hard for a graph index."""
    for size in sizes:
        set_parameters(report, size)
        description = f"{size}: recall@10 against exact search, {DEFAULT}"
        recall = measured(size.recalls, np.mean)
        report.at_least(f"{size.key}.recall", recall, description, "share", MIN_RECALL)


def test_growth_in_process(sizes: list[Size], searches: list[Search], report: Report) -> None:
    """A missed target does not fail the run: without gRPC, the index takes most of the time."""
    record_growth_of_modes(report, "in_process", "in process", sizes, searches)


def test_climb_in_process(sizes: list[Size], searches: list[Search], report: Report) -> None:
    record_climb(report, "in_process", "in process", sizes, searches)
    assert report.missed == []


def test_search_through_grpc(sizes: list[Size], report: Report) -> None:
    with ExitStack() as closing:
        processes = [closing.enter_context(retriever(size)) for size in sizes]
        for process in processes:
            process.wait_until_serving()
        channels = [closing.enter_context(connected(process)) for process in processes]
        searches = [through_grpc(channel) for channel in channels]
        record_growth_of_modes(report, "grpc", "through gRPC", sizes, searches)
        record_climb(report, "grpc", "through gRPC", sizes, searches)
        record_memory(report, sizes, processes)
    assert report.missed == []


def test_restart(sizes: list[Size], report: Report) -> None:
    """Measures a restart of the retriever after SIGKILL.

    The retriever's files are in the page cache, as after a crash of the process alone.
    """
    for size in sizes:
        took = np.array([restarted(size) for _ in range(RESTARTS)])
        set_parameters(report, size)
        description = f"{size}: retriever, from restart after SIGKILL"
        for column, (key, until) in enumerate(RESTART_STAGES):
            figure = measured(took[:, column], np.median)
            report.record(f"{size.key}.restart.{key}", figure, f"{description} to {until}", "s")


def restarted(size: Size) -> tuple[float, float]:
    """Returns the seconds from a restart after SIGKILL to serving, and to the first response."""
    with retriever(size) as process:
        process.wait_until_serving()
        process.kill()
    began = time.perf_counter()
    with retriever(size) as process:
        process.wait_until_serving()
        served_s = time.perf_counter() - began
        with connected(process) as channel:
            size.measures(through_grpc(channel), DEFAULT)[0](0)
        return served_s, time.perf_counter() - began


def record_growth_of_modes(
    report: Report, key: str, where: str, sizes: Sequence[Size], searches: Sequence[Search]
) -> None:
    """Records the latency at each size, and its growth, which has the target."""
    pairs = list(zip(sizes, searches, strict=True))
    in_turn(
        [size.measures(search, LARGEST) for size, search in pairs], QUERIES
    )  # This is the warm-up.
    took = in_turn(
        [
            [measure for extent in EXTENTS for measure in size.measures(search, extent)]
            for size, search in pairs
        ],
        QUERIES,
    )
    for size, size_took in zip(sizes, took, strict=True):
        set_parameters(report, size)
        for extent, modes in zip(EXTENTS, np.split(size_took, len(EXTENTS)), strict=True):
            record_extent(report, f"{size.key}.{key}", f"{size} {where}", extent, modes)
    standard, small_to_big = took[:, 0], took[:, 1]
    ann_search = small_to_big[:, :, SEARCH]
    for name, title, samples, target in (
        ("standard", "standard", standard[:, :, WHOLE], MAX_GROWTH),
        ("small_to_big", "small-to-big", small_to_big[:, :, WHOLE], MAX_GROWTH),
        ("ann_search", "ANN search alone", ann_search, None),
        ("rest", "all but the ANN search", small_to_big[:, :, WHOLE] - ann_search, None),
    ):
        record_growth(report, f"{key}.{name}", f"{where}, {title}", sizes, samples, target)


def record_climb(
    report: Report, key: str, where: str, sizes: Sequence[Size], searches: Sequence[Search]
) -> None:
    """Records the difference of the modes' p99s, measured by the service. It has the target."""
    measures = [
        size.measures(search, CLIMB_TARGET) for size, search in zip(sizes, searches, strict=True)
    ]
    in_turn(measures, QUERIES)  # This is the warm-up.
    for size, took in zip(sizes, in_turn(measures, TARGET_ROUNDS), strict=True):
        set_parameters(report, size)
        record_extent(report, f"{size.key}.{key}", f"{size} {where}", CLIMB_TARGET, took)
        difference = measured(took[:, :, SEARCH:].sum(axis=-1).T, difference_of_p99s)
        description = f"{size} {where}, {CLIMB_TARGET}, small-to-big's p99 - standard's p99"
        report.at_most(
            f"{size.key}.{key}.p99_difference", difference, description, "ms", MAX_CLIMB_MS
        )


def difference_of_p99s(rounds: Samples) -> float:
    standard, small_to_big = np.percentile(rounds, 99, axis=0)
    return float(small_to_big - standard)


def record_extent(
    report: Report, key: str, description: str, extent: Extent, took: Samples
) -> None:
    """Records the percentiles of each mode. `took` is `float64[modes, rounds, 4]`."""
    for mode, mode_took in zip(MODES, took, strict=True):
        key_of_mode = f"{key}.{extent.key}.{mode.lower()}"
        report.percentiles(key_of_mode, mode_took[:, WHOLE], f"{description}, {extent}, {mode}")


def record_growth(
    report: Report,
    key: str,
    description: str,
    sizes: Sequence[Size],
    took: Samples,
    target: float | None = None,
) -> None:
    """Draws the p50 of each size; records the ratio of the largest size's p50 to the smallest's.

    `took` is `float64[sizes, rounds]`.
    """
    growth = sizes[0].growth
    title = f"Search as a collection grows: {growth.dimension:,} dimensions, {DEFAULT}, p50"
    p50s = zip(map(float, growth.leaves), np.median(took, axis=1).tolist(), strict=True)
    report.draw(
        f"{growth.name}_{growth.dimension}", description, p50s, title=title, x="leaves", y="ms"
    )
    key = f"{growth.name}.{growth.dimension}.{key}"
    description = f"{description}, {DEFAULT}, p50 of {sizes[-1]} to {sizes[0]}"
    grown = ratio(took.T, -1, 0)
    if target is None:
        report.record(key, grown, description, "x", "lower")
    else:
        report.at_most(key, grown, description, "x", target)


def record_memory(report: Report, sizes: Sequence[Size], processes: Sequence[Process]) -> None:
    """Records the memory of the retrievers, which have all done the same searches."""
    all_bytes = []
    for size, process in zip(sizes, processes, strict=True):
        memory = memory_of(process)
        all_bytes.append((memory.anon_bytes, memory.resident_bytes))
        set_parameters(report, size)
        for (name, title), memory_bytes in zip(MEMORY, all_bytes[-1], strict=True):
            description = (
                f"{size}: retriever, {title}; the vectors take {size.vector_bytes / MB:.0f} MB"
            )
            report.record(f"{size.key}.memory.{name}", memory_bytes / MB, description, "MB")
    growth = sizes[0].growth
    for (name, title), grown in zip(MEMORY, np.subtract(all_bytes[-1], all_bytes[0]), strict=True):
        bytes_per_leaf = grown / (sizes[-1].leaves - sizes[0].leaves)
        vector = f"its vector takes {sizes[0].queries[0].nbytes:,} bytes"
        description = f"retriever, {title} per added leaf; {vector}"
        key = f"{growth.name}.{growth.dimension}.memory.{name}"
        report.record(key, bytes_per_leaf, description, "bytes", "lower")


def set_parameters(report: Report, size: Size) -> None:
    """Sets the report's parameters to those of a size."""
    report.parameters(seed=SEED, leaves=size.leaves, dimension=size.growth.dimension)


def retriever(size: Size) -> AbstractContextManager[Process]:
    """Starts a retriever on the store of a size; the context manager stops it."""
    settings = {"HRAG_EMBEDDER": f"hash:{size.growth.dimension}", "HRAG_LOG_LEVEL": "info"}
    return started(RETRIEVER, size.folder, settings)


def connected(process: Process) -> grpc.Channel:
    return grpc.insecure_channel(process.address, channel_options(process.address))
