"""Search through gRPC beside the floor: `knn_query` behind a bare grpcio server.

Both are processes of their own on the same machine, search the same index with the same k
for the same requests, and send replies of the same size; the caller is one raw channel that
reads no message, or at saturation h2load, which costs next to nothing. The floor does nothing
else; hrag checks, climbs, reads and encodes. A bar that is missed is told, and is no failure:
what is missing is in the profile.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import numpy as np
import pytest

from benchmarks import baseline_server, corpus
from benchmarks.load import h2load
from benchmarks.load.body import framed
from benchmarks.report import Figures, Report, interleaved, measured, ratio, seconds
from hrag.cli.processes import Services, free_addresses
from hrag.types import DEFAULT_CANDIDATES, SearchQuery
from hrag.v1 import retriever_pb2 as pb
from hrag.wire.retriever import search_request

LEAVES = 50_000
LEAVES_EACH = 100
DIMENSION = 384
SEED = 71
QUERIES = 1000
WARM_UP = 200
ROUNDS = 2000
THREADS = 16  # HRAG_THREADS' default.
SENDERS = 8  # Each of two callers.
SATURATED_S = 2
SATURATIONS = 4
MOST_LATENCY = 1.25
LEAST_THROUGHPUT = 0.8
STAGES = ("search", "climb", "fetch")
SEARCH = "/hrag.v1.RetrieverService/Search"


@dataclass(frozen=True, slots=True)
class Target:
    """A server and a connection to it."""

    address: str
    method: str
    channel: grpc.Channel

    def call(self, request: bytes) -> bytes:
        reply: bytes = self.channel.unary_unary(self.method)(request, timeout=30)
        return reply


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[Path, list[bytes]]]:
    """The folder of a store with one segment, and requests, encoded."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        vectors = corpus.fill(folder, LEAVES, LEAVES_EACH, DIMENSION, SEED, sealed=True)
        queries = corpus.queries_near(vectors, QUERIES, SEED + 1)
        asked = [SearchQuery(corpus.TENANT, each.tolist(), corpus.COLLECTION) for each in queries]
        yield folder, [search_request(query).SerializeToString() for query in asked]


@contextmanager
def targets(
    folder: Path, logs: Path, requests: list[bytes], processes: int
) -> Iterator[tuple[Target, Target]]:
    """The floor, and hrag's retriever, each of so many processes."""
    indexer, retriever, floor = free_addresses(3)
    settings = {"HRAG_EMBEDDER": f"hash:{DIMENSION}", "HRAG_WORKERS": str(processes)}
    with ExitStack() as ending:
        services = Services(folder, indexer, retriever, logs=logs, settings=settings)
        ending.enter_context(services).wait_until_serving(timeout_s=60)
        own = ending.enter_context(connected(retriever, SEARCH))
        reply_bytes = round(statistics.mean(len(own.call(each)) for each in requests[:100]))
        ending.enter_context(bare(folder, floor, reply_bytes, processes))
        yield ending.enter_context(connected(floor, baseline_server.METHOD)), own


@contextmanager
def bare(folder: Path, address: str, reply_bytes: int, processes: int) -> Iterator[None]:
    numbers = map(str, (DEFAULT_CANDIDATES, reply_bytes, THREADS, processes))
    command = [sys.executable, "-m", "benchmarks.baseline_server", str(folder), address, *numbers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline(), "the floor did not start"
        yield
        assert process.stdin
        process.stdin.close()


@contextmanager
def connected(address: str, method: str) -> Iterator[Target]:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(30)
        yield Target(address, method, channel)


def test_latency_of_one_caller(filled, tmp_path, report):
    folder, requests = filled
    with targets(folder, tmp_path, requests, 1) as both:
        measures = [one_caller(target, requests) for target in both]
        interleaved(measures, WARM_UP)
        took = interleaved(measures, ROUNDS) * 1e3
        stages_ms = np.array([stages_of(both[1].call(each)) for each in requests])
    to_floor = ratio(took, 1, 0)
    assert to_floor.value > 1  # What does more cannot be faster: else it did not search.
    report.of(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    title = f"Search beside the floor, {LEAVES:,} x {DIMENSION}, one caller"
    for place, (name, what) in enumerate((("bare", "the floor"), ("search", "Search"))):
        report.percentiles(f"floor.one_caller.{name}", took[:, place], f"{what}, one caller")
        report.draw_percentiles("floor", what, took[:, place], title)
    what = "Search to the floor, one caller, p50"
    report.at_most("floor.one_caller.to_bare", to_floor, what, "x", MOST_LATENCY)
    explain(report, *np.median(took, axis=0), np.median(stages_ms, axis=0))


def stages_of(reply: bytes) -> list[float]:
    """Milliseconds that the retriever says it took."""
    timings = pb.SearchResponse.FromString(reply).timings
    return [getattr(timings, f"{stage}_us") / 1e3 for stage in STAGES]


def explain(report: Report, floor_ms: float, own_ms: float, stages_ms: Figures) -> None:
    """Tells where the time goes; the floor finds the same leaves, and does the rest in less."""
    stages = dict(zip(STAGES, stages_ms.tolist(), strict=True))
    rest = {"rest": own_ms - sum(stages.values())}
    for stage, ms in {**stages, **rest}.items():
        report.tell(f"floor.one_caller.search.{stage}", ms, f"Search, one caller: {stage}", "ms")
    search = stages["search"]
    parts = {
        "the floor": {"search": search, "rest": floor_ms - search},
        "Search": {**stages, **rest},
    }
    for line, points in parts.items():
        title = f"Where Search's time goes beside the floor's, {LEAVES:,} x {DIMENSION}, p50"
        report.draw("floor_stages", line, points.items(), title=title, x="stage", y="ms")


def one_caller(target: Target, requests: list[bytes]) -> Callable[[int], float]:
    return lambda number: seconds(lambda: target.call(requests[number % QUERIES]))


@pytest.mark.skipif(not h2load.is_there(), reason=h2load.MISSING)
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_throughput_at_saturation(filled, tmp_path, report, processes):
    folder, requests = filled
    with targets(folder, tmp_path, requests, processes) as both:
        reply_bytes = len(both[1].call(requests[0]))
        bodies = [tmp_path / f"{number}.body" for number in range(SENDERS)]
        for body, request in zip(bodies, requests, strict=False):
            body.write_bytes(framed(request))
        measures = [saturated(target, bodies, reply_bytes) for target in both]
        interleaved(measures, 1)
        rates = interleaved(measures, SATURATIONS)
    report.of(seed=SEED, leaves=LEAVES, dimension=DIMENSION, callers=2 * SENDERS)
    key = f"floor.saturated.{processes}"
    what = f"{2 * SENDERS} callers of {processes} processes, all on {os.cpu_count()} cores"
    for place, (name, title) in enumerate((("bare", "the floor"), ("search", "Search"))):
        rate = measured(rates[:, place], lambda rounds: float(np.median(rounds)))
        report.tell(f"{key}.{name}", rate, f"{title}, {what}", "calls/s", "higher")
    what = f"Search to the floor, {what}"
    report.at_least(f"{key}.to_bare", ratio(rates, 1, 0), what, "x", LEAST_THROUGHPUT)


def saturated(target: Target, bodies: list[Path], reply_bytes: int) -> Callable[[int], float]:
    """Calls a second of two callers for each body, which they send again and again."""

    def sent(_round: int) -> float:
        with ExitStack() as ending:
            running = [ending.enter_context(sender(target, body)) for body in bodies]
            outputs = [process.communicate()[0] for process in running]
        told = list(map(h2load.told, outputs))
        for each in told:
            assert each.data_bytes > reply_bytes / 2 * each.calls, "calls were refused"
        return sum(each.calls for each in told) / SATURATED_S

    return sent


def sender(target: Target, body: Path) -> "subprocess.Popen[str]":
    command = [
        "h2load", "--clients=2", "--max-concurrent-streams=1", "--warm-up-time=0",
        f"--duration={SATURATED_S}", f"--data={body}", "--header=content-type: application/grpc",
        "--header=te: trailers", f"http://{target.address}{target.method}",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
