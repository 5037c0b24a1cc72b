"""What a search costs as its collection grows: 10,000, 100,000 and a million leaves.

All sizes have texts, topics and queries of the same kind, in one segment each, and have
read every passage once before anything is timed. They take turns, a slice of queries each:
a slow spell of the machine falls on all of them, and the processor's caches are still
those of one size, as they are in a service. The bare index of each size stands beside it,
for walking a larger graph costs more by itself.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import hnswlib
import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import corpus
from benchmarks.report import Report, measured, ratio, seconds
from hrag.cli.processes import RETRIEVER
from hrag.client.calls import channel_options
from hrag.deadline import NEVER
from hrag.embedding import Vectors
from hrag.types import DEFAULT_CANDIDATES, DEFAULT_LIMIT, SearchMode, SearchQuery
from hrag.v1 import retriever_pb2 as pb
from hrag.wire.retriever import search_request
from retriever_svc.pipeline import Search
from tests.endurance.processes import MB, memory_of, pid_of
from tests.processes import Process, started

SIZES = (10_000, 100_000)
FULL_SIZES = (*SIZES, 1_000_000)
DIMENSION = 384
LONG_DIMENSION = 1536  # A million of these take 6 GB thrice, and an hour to index.
LEAVES_EACH = 100
SEED = 81
QUERIES = 1000
SLICE = 50
BARRED_ROUNDS = 2000  # Their p99 is to be steady.
RECALL_QUERIES = 200
RESTARTS = 3
MOST_GROWTH = 2.0
LEAST_RECALL = 0.99
MOST_CLIMB_MS = 0.1
MODES = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)
WHOLE, SEARCH, CLIMB, FETCH = range(4)
INDEX_FILE = "index.hnsw"
METHOD = "/hrag.v1.RetrieverService/Search"

pytestmark = pytest.mark.timeout(3600)

Took = tuple[float, float, float, float]
"""Milliseconds of a search: all that its caller waits for, then as the service says."""
Ask = Callable[[SearchQuery], Took]
Measure = Callable[[int], Took]
"""Given the number of a query."""
Figures = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Way:
    """How much a search asks for."""

    limit: int
    candidates: int

    @property
    def key(self) -> str:
        return f"limit_{self.limit}_k_{self.candidates}"

    def __str__(self) -> str:
        return f"limit {self.limit}, k = {self.candidates}"


DEFAULT = Way(DEFAULT_LIMIT, DEFAULT_CANDIDATES)
BARRED = Way(DEFAULT_LIMIT, 100)  # Of the bar on the climb.
LARGEST = Way(20, 200)
MEMORY = (
    ("own", "memory of its own"),
    ("segment", "resident of the mapped segment"),
    ("resident", "all that is resident"),
)
WAYS = (DEFAULT, Way(5, 200), Way(20, 50), LARGEST)


@dataclass(frozen=True, slots=True)
class Growth:
    """Collections of one dimension, the smallest first. `name` begins the figures' keys."""

    name: str
    dimension: int
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Size:
    """A store with one segment, and queries that find something in it."""

    folder: Path
    growth: Growth
    planned: int
    leaves: int  # Documents are whole: a few more.
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

    def measures(self, ask: Ask, way: Way) -> list[Measure]:
        """One for each mode."""

        def measure(mode: SearchMode) -> Measure:
            def one(number: int) -> Took:
                return ask(
                    SearchQuery(
                        corpus.TENANT,
                        self.queries[number],
                        corpus.COLLECTION,
                        mode,
                        limit=way.limit,
                        candidates=way.candidates,
                    )
                )

            return one

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
    vectors = corpus.fill(folder, planned, LEAVES_EACH, growth.dimension, SEED, sealed=True)
    queries = corpus.queries_near(vectors, QUERIES, SEED + 1)
    recalls = corpus.recalls_at_10(folder, vectors, queries[:RECALL_QUERIES])
    return Size(folder, growth, planned, len(vectors), queries, recalls)


def in_process(search: Search) -> Ask:
    def ask(query: SearchQuery) -> Took:
        began = time.perf_counter()
        found = search.encoded(query, NEVER)
        return took(time.perf_counter() - began, found.result.timings)

    return ask


def through_grpc(channel: grpc.Channel) -> Ask:
    """What is asked and answered is encoded and decoded before and after the clock runs."""
    send = channel.unary_unary(METHOD)

    def ask(query: SearchQuery) -> Took:
        request = search_request(query).SerializeToString()
        began = time.perf_counter()
        reply = send(request, timeout=30)
        ended = time.perf_counter()
        return took(ended - began, pb.SearchResponse.FromString(reply).timings)

    return ask


def took(whole_s: float, timings: Any) -> Took:
    stages = (timings.search_us, timings.climb_us, timings.fetch_us)
    return (whole_s * 1e3, *(each / 1e3 for each in stages))


def bare(index: hnswlib.Index, size: Size) -> Measure:
    def measure(number: int) -> Took:
        query = size.queries[number]
        ms = 1e3 * seconds(lambda: index.knn_query(query, k=DEFAULT.candidates, num_threads=1))
        return ms, ms, 0, 0

    return measure


def in_turn(measures: Sequence[Sequence[Measure]], rounds: int) -> Figures:
    """Calls the measures of all sizes: `float64[sizes, measures, rounds, 4]`.

    Sizes take turns by slices of rounds, the measures of one in every round; each time the
    order is the other way round. No two measures ask the same in one round: the second
    would find the way of the first in the processor's caches.
    """
    figures = np.empty((len(measures), len(measures[0]), rounds, 4))
    for start in range(0, rounds, SLICE):
        for size in there_or_back(len(measures), start // SLICE):
            for number in range(start, start + SLICE):
                for place in there_or_back(len(measures[size]), number):
                    query = number + place * QUERIES // len(measures[size])
                    figures[size, place, number] = measures[size][place](query % QUERIES)
    return figures


def there_or_back(count: int, number: int) -> Sequence[int]:
    return range(count)[:: -1 if number % 2 else 1]


@pytest.fixture
def asks(sizes: list[Size]) -> Iterator[list[Ask]]:
    """In process, one for each size."""
    with ExitStack() as closing:
        readers = [closing.enter_context(corpus.reading(size.folder)) for size in sizes]
        dimension = sizes[0].growth.dimension
        yield [in_process(corpus.search_over(reader, dimension)) for reader in readers]


def test_bare_index(sizes: list[Size], report: Report) -> None:
    walks = [[bare(corpus.bare_index(size.folder), size)] for size in sizes]
    in_turn(walks, QUERIES)  # The warm-up.
    took = in_turn(walks, QUERIES)[:, 0, :, WHOLE]
    tell_growth(report, "bare", "the bare index", sizes, took)


def test_recall(sizes: list[Size], report: Report) -> None:
    """Told: what is found among topics that have nothing to do with each other."""
    for size in sizes:
        of(report, size)
        what = f"{size}: recall@10 to exact search, {DEFAULT}"
        recall = measured(size.recalls, np.mean)
        report.at_least(f"{size.key}.recall", recall, what, "share", LEAST_RECALL)


def test_growth_in_process(sizes: list[Size], asks: list[Ask], report: Report) -> None:
    """Told: without the wire, what a larger index costs is most of a search."""
    judge_growth(report, "in_process", "in process", sizes, asks)


def test_climb_in_process(sizes: list[Size], asks: list[Ask], report: Report) -> None:
    judge_climb(report, "in_process", "in process", sizes, asks)
    assert report.missed == []


def test_search_through_grpc(sizes: list[Size], report: Report) -> None:
    with ExitStack() as closing:
        processes = [closing.enter_context(retriever(size)) for size in sizes]
        for process in processes:
            process.wait_until_serving()
        channels = [closing.enter_context(connected(process)) for process in processes]
        asks = [through_grpc(channel) for channel in channels]
        judge_growth(report, "grpc", "through gRPC", sizes, asks)
        judge_climb(report, "grpc", "through gRPC", sizes, asks)
        tell_memory(report, sizes, processes)
    assert report.missed == []


def test_restart(sizes: list[Size], report: Report) -> None:
    """After SIGKILL; the files are in the kernel's cache, as they are when a process crashes."""
    for size in sizes:
        took = np.array([restarted(size) for _ in range(RESTARTS)])
        of(report, size)
        what = f"{size}: retriever, from its start after SIGKILL"
        for place, (key, until) in enumerate((("serving", "serving"), ("answer", "an answer"))):
            figure = measured(took[:, place], np.median)
            report.tell(f"{size.key}.restart.{key}", figure, f"{what} to {until}", "s")


def restarted(size: Size) -> tuple[float, float]:
    """Seconds from a retriever's start, one having been killed, to serving and to an answer."""
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


def judge_growth(
    report: Report, key: str, where: str, sizes: Sequence[Size], asks: Sequence[Ask]
) -> None:
    """Tells what searches cost at each size, and judges how that grows."""
    asked = list(zip(sizes, asks, strict=True))
    in_turn([size.measures(ask, LARGEST) for size, ask in asked], QUERIES)  # The warm-up.
    took = in_turn(
        [[each for way in WAYS for each in size.measures(ask, way)] for size, ask in asked], QUERIES
    )
    for size, own in zip(sizes, took, strict=True):
        of(report, size)
        for way, modes in zip(WAYS, np.split(own, len(WAYS)), strict=True):
            tell_way(report, f"{size.key}.{key}", f"{size} {where}", way, modes)
    standard, small_to_big = took[:, 0], took[:, 1]
    finding = small_to_big[:, :, SEARCH]
    for name, title, figures, bar in (
        ("standard", "standard", standard[:, :, WHOLE], MOST_GROWTH),
        ("small_to_big", "small-to-big", small_to_big[:, :, WHOLE], MOST_GROWTH),
        ("finding", "of it finding leaves", finding, None),
        ("rest", "of it all else", small_to_big[:, :, WHOLE] - finding, None),
    ):
        tell_growth(report, f"{key}.{name}", f"{where}, {title}", sizes, figures, bar)


def judge_climb(
    report: Report, key: str, where: str, sizes: Sequence[Size], asks: Sequence[Ask]
) -> None:
    """The bar is on the service's own timings."""
    measures = [size.measures(ask, BARRED) for size, ask in zip(sizes, asks, strict=True)]
    in_turn(measures, QUERIES)  # The warm-up.
    for size, took in zip(sizes, in_turn(measures, BARRED_ROUNDS), strict=True):
        of(report, size)
        tell_way(report, f"{size.key}.{key}", f"{size} {where}", BARRED, took)
        difference = measured(took[:, :, SEARCH:].sum(axis=-1).T, difference_of_p99s)
        what = f"{size} {where}, {BARRED}, small-to-big's p99 - standard's p99"
        report.at_most(f"{size.key}.{key}.p99_difference", difference, what, "ms", MOST_CLIMB_MS)


def difference_of_p99s(rounds: Figures) -> float:
    standard, small_to_big = np.percentile(rounds, 99, axis=0)
    return float(small_to_big - standard)


def tell_way(report: Report, key: str, what: str, way: Way, took: Figures) -> None:
    """`took` is `float64[modes, rounds, 4]`."""
    for mode, own in zip(MODES, took, strict=True):
        key_of_mode = f"{key}.{way.key}.{mode.lower()}"
        report.percentiles(key_of_mode, own[:, WHOLE], f"{what}, {way}, {mode}")


def tell_growth(
    report: Report,
    key: str,
    what: str,
    sizes: Sequence[Size],
    took: Figures,
    bar: float | None = None,
) -> None:
    """The p50s of `float64[sizes, rounds]`, drawn, and that of the largest to the smallest."""
    growth = sizes[0].growth
    title = f"Search as a collection grows: {growth.dimension} numbers, {DEFAULT}, p50"
    p50s = zip(map(float, growth.leaves), np.median(took, axis=1).tolist(), strict=True)
    report.draw(f"{growth.name}_{growth.dimension}", what, p50s, title=title, x="leaves", y="ms")
    key = f"{growth.name}.{growth.dimension}.{key}"
    what = f"{what}, {DEFAULT}, p50 of {sizes[-1]} to {sizes[0]}"
    grown = ratio(took.T, -1, 0)
    if bar is None:
        report.tell(key, grown, what, "x", "lower")
    else:
        report.at_most(key, grown, what, "x", bar)


def tell_memory(report: Report, sizes: Sequence[Size], processes: Sequence[Process]) -> None:
    """After the same searches; the segment is shared by all processes that map it."""
    held = []
    for size, process in zip(sizes, processes, strict=True):
        memory, segment_bytes = memory_of(process), mapped_bytes(process, INDEX_FILE)
        held.append((memory.anon_bytes, segment_bytes, memory.resident_bytes))
        of(report, size)
        for (name, title), own in zip(MEMORY, held[-1], strict=True):
            what = f"{size}: retriever, {title}; the vectors take {size.vector_bytes / MB:.0f} MB"
            report.tell(f"{size.key}.memory.{name}", own / MB, what, "MB")
    growth = sizes[0].growth
    for (name, title), grown in zip(MEMORY, np.subtract(held[-1], held[0]), strict=True):
        each = grown / (sizes[-1].leaves - sizes[0].leaves)
        what = f"retriever, {title}, a leaf more; its vector takes {sizes[0].queries[0].nbytes}"
        report.tell(f"{growth.name}.{growth.dimension}.memory.{name}", each, what, "bytes", "lower")


def mapped_bytes(process: Process, name: str) -> int:
    """Resident bytes of the files of this name that a process maps."""
    found, inside = 0, False
    for line in Path(f"/proc/{pid_of(process)}/smaps").read_text("utf-8").splitlines():
        if line.endswith(f"/{name}"):
            inside = True
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
            inside = False
    return found


def of(report: Report, size: Size) -> None:
    report.of(seed=SEED, leaves=size.leaves, dimension=size.growth.dimension)


def retriever(size: Size) -> AbstractContextManager[Process]:
    settings = {"HRAG_EMBEDDER": f"hash:{size.growth.dimension}", "HRAG_LOG_LEVEL": "info"}
    return started(RETRIEVER, size.folder, settings)


def connected(process: Process) -> grpc.Channel:
    return grpc.insecure_channel(process.address, channel_options(process.address))
