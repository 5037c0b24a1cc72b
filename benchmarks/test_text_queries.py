"""Measures hybrid searches by text through gRPC, with the built-in model and default settings.

Questions consist of some consecutive words of a document. Every document has different words, as
frequent as in English (`benchmarks.zipf`). Leaves are clustered around the questions' vectors. All
leaves are in one segment. The cache of vectors is off, so every question is embedded.

The latency is that of one caller. The processor time is that of the retriever's two workers, while
sixteen callers of h2load search. Times depend on the machine, so a missed target is reported and
does not fail the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.load import h2load
from benchmarks.load.body import framed
from benchmarks.peers.servers.processes import processor_s
from benchmarks.peers.servers.senders import h2load_sender, run
from benchmarks.report import Report, interleaved, measured, seconds
from hrag.cli.processes import RETRIEVER
from hrag.client.calls import channel_options
from hrag.models.embedding.builtin import BuiltinEmbedder
from hrag.types import DEFAULT_LIMIT, SearchQuery
from hrag.v1 import retriever_pb2 as pb
from hrag.wire.retriever import search_request
from tests.support.servers.processes import Process, started

LEAVES = 100_000
LEAVES_EACH = 100
SEED = 113
QUERIES = 500
ROUNDS = 2000
# Each process of h2load sends one question.
SENDERS = 8
CALLERS_EACH = 2
SATURATED_S = 3
SATURATIONS = 6
MAX_P50_MS = 2.0
MAX_PROCESSOR_MS = 1.0
METHOD = "hrag.v1.RetrieverService/Search"
HEADERS = ("content-type: application/grpc", "te: trailers")
SETTINGS = {
    "HRAG_EMBEDDER": "builtin",
    "HRAG_QUERY_CACHE_ENTRIES": "0",
    "HRAG_LOG_LEVEL": "info",
}
STAGES = ("embed", "search", "climb", "fetch")

pytestmark = pytest.mark.timeout(1800)


@dataclass(frozen=True, slots=True)
class Filled:
    """A store with one segment, and the encoded requests of all questions."""

    folder: Path
    leaves: int
    requests: list[bytes]

    def __str__(self) -> str:
        return f"hybrid search by text, {self.leaves:,} x {BuiltinEmbedder.dimension}"


@pytest.fixture(scope="module")
def filled() -> Iterator[Filled]:
    questions = corpus.questions(LEAVES, LEAVES_EACH, SEED, QUERIES)
    embedder = BuiltinEmbedder()
    with TemporaryDirectory() as name:
        folder = Path(name) / "store"
        vectors = corpus.fill(
            folder,
            LEAVES,
            LEAVES_EACH,
            embedder.dimension,
            SEED,
            sealed=True,
            embedder=embedder.name,
            centres=embedder.embed(questions),
            varied=True,
        )
        searches = [SearchQuery(corpus.TENANT, text, corpus.COLLECTION) for text in questions]
        requests = [search_request(search).SerializeToString() for search in searches]
        yield Filled(folder, len(vectors), requests)


def test_latency_of_one_caller(filled: Filled, report: Report) -> None:
    """Times round trips of a raw channel. Encoding and decoding of messages is not timed."""
    with started(RETRIEVER, filled.folder, SETTINGS) as retriever:
        retriever.wait_until_serving()
        with grpc.insecure_channel(
            retriever.address, channel_options(retriever.address)
        ) as channel:
            send = channel.unary_unary(f"/{METHOD}")
            replies = [
                pb.SearchResponse.FromString(send(request, timeout=60))
                for request in filled.requests
            ]
            for reply in replies:
                assert (reply.retrieval, reply.fallback) == (pb.RETRIEVAL_HYBRID, "")
                assert len(reply.passages) == DEFAULT_LIMIT

            def search(number: int) -> float:
                request = filled.requests[number % QUERIES]
                return seconds(lambda: replies.append(send(request, timeout=60)))

            replies.clear()
            took_ms = interleaved([search], ROUNDS)[:, 0] * 1e3
    report.parameters(seed=SEED, leaves=filled.leaves, dimension=BuiltinEmbedder.dimension)
    p50 = measured(took_ms, np.median)
    report.at_most("text_query.p50", p50, f"{filled}, one caller, p50", "ms", MAX_P50_MS)
    p99 = measured(took_ms, lambda rounds: float(np.percentile(rounds, 99)))
    report.record("text_query.p99", p99, f"{filled}, one caller, p99", "ms")
    stages_ms = np.array([stages_of(reply) for reply in replies])
    for column, stage in enumerate(STAGES):
        description = f"{filled}, one caller: {stage}, p50"
        took = measured(stages_ms[:, column], np.median)
        report.record(f"text_query.{stage}", took, description, "ms")
    rest = measured(took_ms - stages_ms.sum(axis=1), np.median)
    report.record("text_query.rest", rest, f"{filled}, one caller: everything else, p50", "ms")


def stages_of(reply: bytes) -> list[float]:
    """Returns the milliseconds of each stage, as the retriever reports them."""
    timings = pb.SearchResponse.FromString(reply).timings
    return [getattr(timings, f"{stage}_us") / 1e3 for stage in STAGES]


@pytest.mark.skipif(not h2load.is_installed(), reason=h2load.MISSING)
def test_processor_time_of_two_workers(filled: Filled, tmp_path: Path, report: Report) -> None:
    with started(RETRIEVER, filled.folder, {**SETTINGS, "HRAG_WORKERS": "2"}) as retriever:
        retriever.wait_until_serving()
        saturated(retriever, filled.requests, tmp_path)  # This is the warm-up.
        rounds = [
            saturated(retriever, filled.requests[number * SENDERS :], tmp_path)
            for number in range(SATURATIONS)
        ]
    rates, processor_ms = np.array(rounds).T
    report.parameters(seed=SEED, leaves=filled.leaves, dimension=BuiltinEmbedder.dimension)
    where = f"{filled}, {SENDERS * CALLERS_EACH} callers, two workers"
    rate = measured(rates, np.median)
    report.record("text_query.two_workers.rate", rate, f"searches a second, {where}", "calls/s")
    report.at_most(
        "text_query.two_workers.processor",
        measured(processor_ms, np.median),
        f"{where}: processor time of a search",
        "ms",
        MAX_PROCESSOR_MS,
    )


def saturated(retriever: Process, requests: list[bytes], folder: Path) -> tuple[float, float]:
    """Lets all callers search; returns searches a second, and processor time in milliseconds.

    Each process of h2load sends another of `requests` again and again.
    """
    senders = []
    for number, request in enumerate(requests[:SENDERS]):
        files = folder / str(number)
        files.mkdir(exist_ok=True)
        sender = h2load_sender(
            f"http://{retriever.address}/{METHOD}",
            HEADERS,
            framed(request),
            folder=files,
            callers=CALLERS_EACH,
            seconds=SATURATED_S,
            reply_bytes=DEFAULT_LIMIT,
        )
        senders.append(sender)
    before_s = processor_s([retriever.pid])
    sent = run(senders, SATURATED_S)
    processor_ms = (processor_s([retriever.pid]) - before_s) / sent.calls * 1e3
    return sent.per_second, processor_ms
