"""Search through gRPC beside the floor: `knn_query` behind a bare grpcio server.

Both are processes of their own on the same machine, search the same index with the same k
for the same requests, and send replies of the same size; the caller is one raw channel that
reads no message. The floor does nothing else; hrag checks, climbs, reads and encodes. A bar
that is missed is told, and is no failure: what is missing is in the profile.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import numpy as np
import pytest

from benchmarks import corpus, floor_server
from benchmarks.report import interleaved, measured, ratio, seconds
from hrag.cli.running import Services, free_addresses
from hrag.types import DEFAULT_CANDIDATES, SearchQuery
from hrag.wire.retriever import search_request

LEAVES = 50_000
LEAVES_EACH = 100
DIMENSION = 384
SEED = 71
QUERIES = 1000
WARM_UP = 200
ROUNDS = 2000
THREADS = 16  # HRAG_THREADS' default.
CALLERS = 16
CALLS = 2000  # Of a round at saturation.
SATURATIONS = 3
MOST_LATENCY = 1.25
LEAST_THROUGHPUT = 0.8
SEARCH = "/hrag.v1.RetrieverService/Search"


@dataclass(frozen=True, slots=True)
class Target:
    """A server, with a connection for each caller."""

    channels: tuple[grpc.Channel, ...]
    method: str

    def call(self, number: int, request: bytes) -> bytes:
        send = self.channels[number % len(self.channels)].unary_unary(self.method)
        reply: bytes = send(request, timeout=30)
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
    folder: Path, logs: Path, requests: list[bytes], processes: int, connections: int
) -> Iterator[tuple[Target, Target]]:
    """The floor, and hrag's retriever, each of so many processes."""
    indexer, retriever, floor = free_addresses(3)
    settings = {"HRAG_EMBEDDER": f"hash:{DIMENSION}", "HRAG_WORKERS": str(processes)}
    with ExitStack() as ending:
        services = Services(folder, indexer, retriever, logs=logs, settings=settings)
        ending.enter_context(services).wait_until_serving(timeout_s=60)
        own = ending.enter_context(connected(retriever, SEARCH, connections))
        reply_bytes = round(statistics.mean(len(own.call(0, each)) for each in requests[:100]))
        ending.enter_context(bare(folder, floor, reply_bytes, processes))
        yield ending.enter_context(connected(floor, floor_server.METHOD, connections)), own


@contextmanager
def bare(folder: Path, address: str, reply_bytes: int, processes: int) -> Iterator[None]:
    numbers = map(str, (DEFAULT_CANDIDATES, reply_bytes, THREADS, processes))
    command = [sys.executable, "-m", "benchmarks.floor_server", str(folder), address, *numbers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline(), "the floor did not start"
        yield
        assert process.stdin
        process.stdin.close()


@contextmanager
def connected(address: str, method: str, connections: int) -> Iterator[Target]:
    own = [("grpc.use_local_subchannel_pool", 1)]  # Else all channels share a connection.
    with ExitStack() as closing:
        channels = [
            closing.enter_context(grpc.insecure_channel(address, own)) for _ in range(connections)
        ]
        for channel in channels:
            grpc.channel_ready_future(channel).result(30)
        yield Target(tuple(channels), method)


def test_latency_of_one_caller(filled, tmp_path, report):
    folder, requests = filled
    with targets(folder, tmp_path, requests, 1, 1) as both:
        measures = [one_caller(target, requests) for target in both]
        interleaved(measures, WARM_UP)
        took = interleaved(measures, ROUNDS) * 1e3
    to_floor = ratio(took, 1, 0)
    assert to_floor.value > 1  # What does more cannot be faster: else it did not search.
    report.of(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    title = f"Search beside the floor, {LEAVES:,} x {DIMENSION}, one caller"
    for place, (name, what) in enumerate((("bare", "the floor"), ("search", "Search"))):
        report.percentiles(f"floor.one_caller.{name}", took[:, place], f"{what}, one caller")
        report.draw_percentiles("floor", what, took[:, place], title)
    what = "Search to the floor, one caller, p50"
    report.at_most("floor.one_caller.to_bare", to_floor, what, "x", MOST_LATENCY)


def one_caller(target: Target, requests: list[bytes]) -> Callable[[int], float]:
    return lambda number: seconds(lambda: target.call(0, requests[number % QUERIES]))


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_throughput_at_saturation(filled, tmp_path, report, processes):
    folder, requests = filled
    with (
        targets(folder, tmp_path, requests, processes, CALLERS) as both,
        ThreadPoolExecutor(CALLERS) as callers,
    ):
        measures = [saturated(target, requests, callers) for target in both]
        interleaved(measures, 1)
        took = interleaved(measures, SATURATIONS)
    report.of(seed=SEED, leaves=LEAVES, dimension=DIMENSION, callers=CALLERS)
    key = f"floor.saturated.{processes}"
    what = f"{CALLERS} callers of {processes} processes, all on {os.cpu_count()} cores"
    for place, (name, title) in enumerate((("bare", "the floor"), ("search", "Search"))):
        rate = measured(took[:, place], lambda rounds: CALLS / np.median(rounds))
        report.tell(f"{key}.{name}", rate, f"{title}, {what}", "calls/s", "higher")
    to_floor = ratio(took, 0, 1)
    report.at_least(
        f"{key}.to_bare", to_floor, f"Search to the floor, {what}", "x", LEAST_THROUGHPUT
    )


def saturated(
    target: Target, requests: list[bytes], callers: ThreadPoolExecutor
) -> Callable[[int], float]:
    def one(number: int) -> None:
        target.call(number, requests[number % QUERIES])

    return lambda _: seconds(lambda: list(callers.map(one, range(CALLS))))
