"""Compares the latency of searches while one call in ten is a write with that of searches alone.

Both services run on one store. Four callers search, and four writers write one document for every
nine searches. There are two kinds of load. At a fixed rate of searches, the processor is not fully
used, so the added latency is the cost of the writes. At full speed, callers wait if the writes are
late, so that still one call in ten is a write. Slices with and without writes alternate.

Searches are dense. Writes replace documents, add documents and delete the added documents again.
Meanwhile documents are embedded, indexed by words, sealed and merged. After each write the writer
searches with the sequence number that the write returned. The search must find a stored document,
and must not find a deleted document. A failed call ends the benchmark.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, cycle, islice, starmap
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory

import grpc
import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import Report, Samples, interleaved, measured, ratio
from hrag.client import Client
from hrag.client.calls import channel_options
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, SearchMode, TreeSettings
from hrag.values.tree import ParsedText
from hrag.wire.retriever import search_request
from indexer_svc.chunker import build_tree
from tests.endurance.processes import wait_until_idle
from tests.support.servers.processes import Running, running

LEAVES = 50_000
LEAVES_EACH = 10
TEXT_BYTES = 920 * LEAVES_EACH
DIMENSION = 384
SEED = 91
QUERIES = 1000
CALLERS = 4
WRITERS = 4
ROUNDS = 2
PER_WRITE = 9
# The callers together make this many searches a second, which is a quarter of the capacity of one
# process on two cores.
PACED = 160.0
SEGMENT_MIN_LEAVES = 1024
TIMEOUT_S = 60.0
SETTINGS = {
    "HRAG_EMBEDDER": f"hash:{DIMENSION}",
    "HRAG_SEGMENT_MIN_LEAVES": str(SEGMENT_MIN_LEAVES),
    "HRAG_LOG_LEVEL": "info",
}
EMBEDDER = HashEmbedder(DIMENSION)
WITHOUT, WITH = range(2)
METHOD = "/hrag.v1.RetrieverService/Search"

pytestmark = pytest.mark.timeout(600)

Send = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of the searches.

    `rate` is the number of searches a second of all callers together; None means full speed. In a
    slice of the load, each caller makes `searches` searches.
    """

    key: str
    title: str
    searches: int
    rate: float | None = None

    def __str__(self) -> str:
        return self.title


PACES = (
    Pace("paced", f"{PACED:.0f} searches/s", 200, PACED),
    Pace("full", f"{CALLERS} callers at full speed", 600),
)
MAX_WRITES = sum(CALLERS * pace.searches for pace in PACES) * ROUNDS // PER_WRITE


@dataclass(frozen=True, slots=True)
class Write:
    """A write: stores a document whose first leaf is `leaf`, or deletes it if `text` is empty.

    `vector` is the vector of the leaf. Searches use it instead of the leaf's text, in which quotes
    would mark required phrases.
    """

    document_id: str
    leaf: str
    vector: list[float]
    text: str

    def run(self, client: Client) -> int:
        """Performs the write and returns its sequence number."""
        if not self.text:
            return client.delete_document(
                corpus.TENANT, self.document_id, collection=corpus.COLLECTION
            )
        document = Document(self.text, self.document_id)
        return client.ingest(corpus.TENANT, document, collection=corpus.COLLECTION).sequence

    def is_visible(self, client: Client, sequence: int) -> bool:
        """True if a search with `min_sequence` = `sequence` sees the write.

        The first passage must be the first leaf of a stored document, and must not be from a
        deleted document.
        """
        (best,) = client.search(
            corpus.TENANT,
            self.vector,
            collection=corpus.COLLECTION,
            mode=SearchMode.STANDARD,
            limit=1,
            min_sequence=sequence,
            candidates=corpus.DENSE_CANDIDATES,
            neighbour_bonus=0.0,
        ).passages
        is_found = (best.chunk.document_id, best.chunk.content) == (self.document_id, self.leaf)
        return is_found == bool(self.text)


def writes_of(writer: int) -> Iterator[Write]:
    """Yields writes without end.

    Of four writes, two replace documents, one adds a document, and one deletes the added document.
    """
    random = np.random.default_rng((SEED, writer))
    for number in count():
        for _ in range(2):
            chosen = int(random.integers(LEAVES // LEAVES_EACH // WRITERS)) * WRITERS + writer
            yield stored(f"document-{chosen:06d}", int(random.integers(1 << 20)))
        added = stored(f"added-{writer}-{number:06d}", int(random.integers(1 << 20)))
        yield added
        yield replace(added, text="")


def stored(document_id: str, version: int) -> Write:
    """Returns the write that stores a document. Its text depends on its id and version."""
    text = f"{document_id} {version}. {corpus.english_text(TEXT_BYTES, start=version)}"
    leaf = build_tree(ParsedText(text), TreeSettings()).record(0, 0)
    content = text[leaf.char_start : leaf.char_end]
    return Write(document_id, content, EMBEDDER.embed([content])[0].tolist(), text)


class Writer:
    """A writer of documents that no other writer writes. Collects latencies and visibility."""

    def __init__(self, number: int, client: Client) -> None:
        self._client = client
        # The writes are prepared in advance, because chunking a text costs as much as storing it.
        self._plan = iter(list(islice(writes_of(number), MAX_WRITES)))
        self.write_ms: list[float] = []
        self.read_own_write_ms: list[float] = []
        self.visible: list[bool] = []

    def work(self, due: "Queue[bool]") -> None:
        """Writes once for each True in the queue; stops at the first False."""
        while due.get():
            write = next(self._plan)
            began = time.perf_counter()
            sequence = write.run(self._client)
            written = time.perf_counter()
            self.visible.append(write.is_visible(self._client, sequence))
            self.read_own_write_ms.append(1e3 * (time.perf_counter() - written))
            self.write_ms.append(1e3 * (written - began))


class Load:
    """Callers of a retriever, with or without concurrent writers."""

    def __init__(
        self,
        services: Running,
        callers: Sequence[Send],
        requests: Sequence[bytes],
        writers: Sequence[Writer],
    ) -> None:
        self._indexer = services.indexer
        self._callers = callers
        self._requests = requests
        self._writers = writers

    def slice(self, pace: Pace, *, writes: bool) -> tuple[float, list[float]]:
        """Runs one slice; returns its seconds, and the milliseconds of each search.

        The time of a search counts from when it was due.
        """
        if not writes:
            wait_until_idle(self._indexer, TIMEOUT_S)
        writers = self._writers if writes else ()
        limit = 0 if pace.rate else len(writers)
        with _writing(writers, limit) as due, ThreadPoolExecutor(CALLERS) as threads:
            began = time.perf_counter()
            work = partial(self._search, pace, began, due)
            took_ms = list(chain.from_iterable(threads.map(work, range(CALLERS))))
            return time.perf_counter() - began, took_ms

    def _search(self, pace: Pace, began: float, due: "Queue[bool]", caller: int) -> list[float]:
        took_ms = []
        requests = islice(cycle(self._requests), caller * QUERIES // CALLERS, None)
        for number, request in enumerate(islice(requests, pace.searches)):
            start = time.perf_counter()
            if pace.rate:
                start = began + (number * CALLERS + caller) / pace.rate
                time.sleep(max(0, start - time.perf_counter()))
            self._callers[caller](request)
            took_ms.append(1e3 * (time.perf_counter() - start))
            if number % PER_WRITE == 0:
                due.put(True, timeout=TIMEOUT_S)
        return took_ms


@contextmanager
def _writing(writers: Sequence[Writer], limit: int) -> Iterator["Queue[bool]"]:
    """Runs the writers on a queue and waits for all of them in the end.

    The queue contains at most `limit` writes; 0 is no limit.
    """
    due: Queue[bool] = Queue(limit)
    with ThreadPoolExecutor(WRITERS) as threads:
        futures = [threads.submit(writer.work, due) for writer in writers]
        try:
            yield due
        finally:
            for _ in writers:
                due.put(False, timeout=TIMEOUT_S)
    for future in futures:
        future.result()


@pytest.fixture
def filled() -> Iterator[tuple[Path, list[bytes]]]:
    """The folder of a store with one segment, and encoded requests."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "store"
        vectors = corpus.fill(folder, LEAVES, LEAVES_EACH, DIMENSION, SEED, sealed=True)
        queries = corpus.queries_near(vectors, QUERIES, SEED + 1)
        searches = [corpus.dense_query(vector.tolist()) for vector in queries]
        yield folder, [search_request(query).SerializeToString() for query in searches]


@pytest.fixture
def services(filled: tuple[Path, list[bytes]]) -> Iterator[Running]:
    with running(filled[0], SETTINGS) as services:
        yield services


@pytest.fixture
def writers(services: Running) -> Iterator[list[Writer]]:
    with ExitStack() as closing:
        clients = [closing.enter_context(services.new_client()) for _ in range(WRITERS)]
        yield list(starmap(Writer, enumerate(clients)))


@pytest.fixture
def callers(services: Running) -> Iterator[list[Send]]:
    address = services.retriever.address
    with ExitStack() as closing:
        channels = [
            closing.enter_context(grpc.insecure_channel(address, channel_options(address)))
            for _ in range(CALLERS)
        ]
        yield [partial(channel.unary_unary(METHOD), timeout=TIMEOUT_S) for channel in channels]


def test_searches_beside_writes(filled, services, callers, writers, report):
    load = Load(services, callers, filled[1], writers)
    sealed = sealed_sequence(services)
    for pace in PACES:
        compare(report, load, pace)
    assert sealed_sequence(services) > sealed, "nothing was sealed meanwhile"
    for key, title in (
        ("write", "write"),
        ("read_own_write", "search that reads its own write"),
    ):
        took_ms = np.concatenate([getattr(writer, f"{key}_ms") for writer in writers])
        report.percentiles(f"mixed.{key}", took_ms, f"{title}, {LEAVES_EACH} leaves a document")
    visible = np.concatenate([writer.visible for writer in writers])
    description = f"writes visible to the next search, of {len(visible):,}"
    report.at_least("mixed.writes_visible", float(np.mean(visible)), description, "share", 1)
    assert report.missed == []


def sealed_sequence(services: Running) -> int:
    """Returns the sequence number up to which the collection's documents are in segments."""
    client = services.client
    return client.index_status(corpus.TENANT, collection=corpus.COLLECTION).embedded.sealed_sequence


def compare(report: Report, load: Load, pace: Pace) -> None:
    """Measures slices without and with writes in turn, and records their figures."""
    took_ms: tuple[list[float], list[float]] = ([], [])

    def slice_s(kind: int, _: int) -> float:
        took_s, searches_ms = load.slice(pace, writes=kind == WITH)
        took_ms[kind].extend(searches_ms)
        return took_s

    slice_s(WITHOUT, 0)  # This is the warm-up.
    took_ms[WITHOUT].clear()
    slices_s = interleaved([partial(slice_s, WITHOUT), partial(slice_s, WITH)], ROUNDS)
    searches_ms = np.array(took_ms).T
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION, callers=CALLERS)
    key = f"mixed.{pace.key}"
    for kind, (name, title) in enumerate(
        (("without_writes", "without writes"), ("with_writes", "with writes"))
    ):
        description = f"searches {title}, {pace}"
        report.percentiles(f"{key}.{name}", searches_ms[:, kind], description)
        if pace.rate is None:
            rate = measured(slices_s[:, kind], partial(rate_of, pace))
            report.record(f"{key}.{name}.rate", rate, description, "calls/s")
    description = f"searches with writes, ratio to without, {pace}"
    for percent in (50, 99):
        figure = ratio(searches_ms, WITH, WITHOUT, percent)
        report.record(f"{key}.p{percent}_ratio", figure, f"{description}, p{percent}", "x", "lower")
    if pace.rate is None:
        figure = ratio(slices_s, WITHOUT, WITH)
        report.record(
            f"{key}.rate_ratio", figure, f"{description}, searches a second", "x", "higher"
        )


def rate_of(pace: Pace, slices_s: Samples) -> float:
    """Returns the searches a second."""
    return float(CALLERS * pace.searches / np.median(slices_s))
