"""Compares Search through gRPC with the baseline: a bare grpcio handler that calls `knn_query`.

Both servers run in separate processes on one machine. They search the same index with the same k
for the same requests, and send replies of the same size. For the latency, one caller sends requests
over a raw channel, which decodes no reply. For the throughput, h2load saturates the servers; h2load
takes almost no processor time. The baseline only searches, while hrag also checks the request,
climbs, reads texts and encodes the reply. Missed targets are reported; they do not fail the run.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest

from benchmarks import baseline_server, corpus
from benchmarks.load import h2load
from benchmarks.load.body import framed
from benchmarks.report import Report, Samples, interleaved, measured, ratio, seconds
from benchmarks.sealed_store import sealed_store
from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.v1 import retriever_pb2 as pb
from hrag.wire.retriever import search_request

LEAVES = 50_000
LEAVES_EACH = 100
DIMENSION = 384
SEED = 71
QUERIES = 1000
WARM_UP = 200
ROUNDS = 2000
THREADS = 16  # The default of HRAG_THREADS.
# Each h2load process has two callers.
SENDERS = 8
SATURATED_S = 2
SATURATIONS = 4
MAX_LATENCY_RATIO = 1.25
MIN_THROUGHPUT_RATIO = 0.6
STAGES = ("search", "climb", "fetch")
SEARCH = "/hrag.v1.RetrieverService/Search"
SERVERS = (("handler", "baseline handler"), ("search", "Search"))
"""The key and the title of each server, in the order of `servers`."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server and a connection to it."""

    address: str
    method: str
    channel: grpc.Channel

    def call(self, request: bytes) -> bytes:
        """Sends an encoded request and returns the encoded reply."""
        reply: bytes = self.channel.unary_unary(self.method)(request, timeout=30)
        return reply


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[Path, list[bytes]]]:
    """The folder of a store with one segment, and encoded requests."""
    with sealed_store(LEAVES, LEAVES_EACH, DIMENSION, SEED, QUERIES) as (folder, queries):
        searches = [corpus.dense_query(vector.tolist()) for vector in queries]
        yield folder, [search_request(query).SerializeToString() for query in searches]


@contextmanager
def servers(
    folder: Path, logs: Path, requests: list[bytes], processes: int
) -> Iterator[tuple[Server, Server]]:
    """Runs the baseline and hrag's retriever, each with `processes` processes."""
    indexer, retriever, baseline = free_addresses(3)
    settings = {"HRAG_EMBEDDER": f"hash:{DIMENSION}", "HRAG_WORKERS": str(processes)}
    with ExitStack() as ending:
        services = ServiceProcesses(folder, indexer, retriever, logs=logs, settings=settings)
        ending.enter_context(services).wait_until_serving(timeout_s=60)
        search = ending.enter_context(connected(retriever, SEARCH))
        reply_bytes = round(
            statistics.mean(len(search.call(request)) for request in requests[:100])
        )
        ending.enter_context(baseline_processes(folder, baseline, reply_bytes, processes))
        yield ending.enter_context(connected(baseline, baseline_server.METHOD)), search


@contextmanager
def baseline_processes(
    folder: Path, address: str, reply_bytes: int, processes: int
) -> Iterator[None]:
    """Runs `benchmarks.baseline_server` until the context ends."""
    numbers = map(str, (corpus.DENSE_CANDIDATES, reply_bytes, THREADS, processes))
    command = [sys.executable, "-m", "benchmarks.baseline_server", str(folder), address, *numbers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline(), "the baseline server did not start"
        yield
        assert process.stdin
        process.stdin.close()


@contextmanager
def connected(address: str, method: str) -> Iterator[Server]:
    """Connects to a server and waits until it accepts connections."""
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(30)
        yield Server(address, method, channel)


def test_latency_of_one_caller(filled, tmp_path, report):
    folder, requests = filled
    with servers(folder, tmp_path, requests, 1) as both:
        measures = [one_caller(server, requests) for server in both]
        interleaved(measures, WARM_UP)
        took = interleaved(measures, ROUNDS) * 1e3
        stages_ms = np.array([stages_of(both[1].call(request)) for request in requests])
    to_baseline = ratio(took, 1, 0)
    assert to_baseline.value > 1, "Search cannot be faster than its baseline: it found nothing"
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    title = f"Search and the baseline, {LEAVES:,} x {DIMENSION}, one caller"
    for column, (key, description) in enumerate(SERVERS):
        report.percentiles(
            f"baseline.one_caller.{key}", took[:, column], f"{description}, one caller"
        )
        line = description.removesuffix(" handler")
        report.draw_percentiles("baseline", line, took[:, column], title)
    description = "Search, ratio to baseline, one caller, p50"
    report.at_most("baseline.one_caller.ratio", to_baseline, description, "x", MAX_LATENCY_RATIO)
    record_stages(report, *np.median(took, axis=0), np.median(stages_ms, axis=0))


def stages_of(reply: bytes) -> list[float]:
    """Returns the milliseconds of each stage, as the retriever reports them."""
    timings = pb.SearchResponse.FromString(reply).timings
    return [getattr(timings, f"{stage}_us") / 1e3 for stage in STAGES]


def record_stages(report: Report, baseline_ms: float, search_ms: float, stages_ms: Samples) -> None:
    """Records the time of each stage of Search, and draws it for both servers.

    The baseline reports no stages. It is assumed to search its index as fast as Search does.
    """
    stages = dict(zip(STAGES, stages_ms.tolist(), strict=True))
    other_ms = search_ms - sum(stages.values())
    for key, stage, ms in (
        *((stage, stage, ms) for stage, ms in stages.items()),
        ("rest", "everything else", other_ms),
    ):
        description = f"Search, one caller: {stage}"
        report.record(f"baseline.one_caller.search.{key}", ms, description, "ms")
    search = stages["search"]
    lines = {
        "baseline": {"search": search, "everything else": baseline_ms - search},
        "Search": {**stages, "everything else": other_ms},
    }
    title = f"Where the time of Search and of the baseline goes, {LEAVES:,} x {DIMENSION}, p50"
    for line, points in lines.items():
        report.draw("baseline_stages", line, points.items(), title=title, x="stage", y="ms")


def one_caller(server: Server, requests: list[bytes]) -> Callable[[int], float]:
    """Returns a measure: the seconds of one call."""
    return lambda number: seconds(lambda: server.call(requests[number % QUERIES]))


@pytest.mark.skipif(not h2load.is_installed(), reason=h2load.MISSING)
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_throughput_at_saturation(filled, tmp_path, report, processes):
    folder, requests = filled
    with servers(folder, tmp_path, requests, processes) as both:
        reply_bytes = len(both[1].call(requests[0]))
        bodies = [tmp_path / f"{number}.body" for number in range(SENDERS)]
        for body, request in zip(bodies, requests, strict=False):
            body.write_bytes(framed(request))
        measures = [saturated(server, bodies, reply_bytes) for server in both]
        interleaved(measures, 1)
        rates = interleaved(measures, SATURATIONS)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION, callers=2 * SENDERS)
    key = f"baseline.saturated.{processes}"
    plural = "" if processes == 1 else "es"
    where = f"{2 * SENDERS} callers, {processes} server process{plural}, {os.cpu_count()} cores"
    for column, (name, title) in enumerate(SERVERS):
        rate = measured(rates[:, column], lambda rounds: float(np.median(rounds)))
        report.record(f"{key}.{name}", rate, f"{title}, {where}", "calls/s", "higher")
    description = f"Search, ratio to baseline, {where}"
    report.at_least(f"{key}.ratio", ratio(rates, 1, 0), description, "x", MIN_THROUGHPUT_RATIO)


def saturated(server: Server, bodies: list[Path], reply_bytes: int) -> Callable[[int], float]:
    """Returns a measure: calls a second of two callers for each body.

    Each caller sends its body again and again.
    """

    def rate(_round: int) -> float:
        with ExitStack() as ending:
            running = [ending.enter_context(sender(server, body)) for body in bodies]
            outputs = [process.communicate()[0] for process in running]
        runs = list(map(h2load.parse, outputs))
        for run in runs:
            assert run.data_bytes > reply_bytes / 2 * run.calls, "calls were refused"
        return sum(run.calls for run in runs) / SATURATED_S

    return rate


def sender(server: Server, body: Path) -> "subprocess.Popen[str]":
    """Starts one h2load process with two callers."""
    command = [
        "h2load", "--clients=2", "--max-concurrent-streams=1", "--warm-up-time=0",
        f"--duration={SATURATED_S}", f"--data={body}", "--header=content-type: application/grpc",
        "--header=te: trailers", f"http://{server.address}{server.method}",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
