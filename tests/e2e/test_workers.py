"""A retriever with several worker processes serves, stops and reports errors like one process."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from operator import ge
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import grpc
import pytest

from hrag.cli.processes import INDEXER, RETRIEVER, free_addresses
from hrag.client import Client
from hrag.client.calls import channel_options
from hrag.types import Document
from hrag.v1 import retriever_pb2, retriever_pb2_grpc
from tests.support.servers.metrics_page import Scrape
from tests.support.servers.processes import (
    FAST,
    Process,
    Running,
    children_of,
    is_alive,
    running,
    started,
)
from tests.support.servers.stores import is_embedded
from tests.support.until import PATIENCE_S, until

_COUNT = 3
_MEMORY_BYTES = 96 << 20
_WORKERS = {
    **FAST,
    "HRAG_WORKERS": str(_COUNT),
    "HRAG_MEMORY_BYTES": str(_MEMORY_BYTES),
    # Calls that run at a stop have all the time that they need.
    "HRAG_DRAIN_S": "300",
}
# The kernel assigns each connection to a random worker. With this many connections, fewer than one
# run in a million leaves one of the three workers without a connection.
_CHANNELS = 40
_ESTABLISHED = "01"


def _served(retriever: Process) -> int:
    """Returns how many workers have started to serve, including workers that have ended."""
    return len(re.findall(r"\] serving ", retriever.log))


@pytest.fixture
def metrics_address() -> str:
    return free_addresses(1)[0]


@pytest.fixture
def services(data_dir: Path, metrics_address: str) -> Iterator[Running]:
    """An indexer and a retriever of three workers, with one document."""
    settings = {**_WORKERS, "HRAG_RETRIEVER_METRICS_ADDRESS": metrics_address}
    with running(data_dir, settings) as services:
        services.client.ingest("t", Document("Cats sleep.", "a"))
        until(lambda: _served(services.retriever) == _COUNT)
        yield services


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Yields a stub with a new connection and the retry policy of a client."""
    options = [*channel_options(address), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options) as channel:
        yield retriever_pb2_grpc.RetrieverServiceStub(channel)


def _search(stub: Any) -> list[str]:
    request = retriever_pb2.SearchRequest(tenant_id="t", text="x")
    response = stub.Search(request, timeout=PATIENCE_S)
    return [passage.chunk.document_id for passage in response.passages]


def _connections(pid: int, port: int) -> int:
    """Returns how many open connections a process has accepted on a port."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _ESTABLISHED and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    return sum(1 for link in Path(f"/proc/{pid}/fd").iterdir() if _target(link) in sockets)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        # The file was closed after the folder had been listed.
        return ""


def _alive(pids: set[int]) -> bool:
    return any(map(is_alive, pids))


# In these tests, workers serve.


def test_searches_are_distributed_over_workers_that_share_port_and_memory(
    services: Running,
) -> None:
    retriever = services.retriever
    workers = retriever.children
    assert len(workers) == _COUNT
    with ExitStack() as connections:
        for _ in range(_CHANNELS):
            assert _search(connections.enter_context(_connected(retriever.address))) == ["a"]
        shares = {pid: _connections(pid, int(retriever.port)) for pid in workers}
        assert all(shares.values()), shares
        assert sum(shares.values()) >= _CHANNELS
    if is_embedded():
        reader = services.client.server_info().reader
        assert reader.embedded.budget_bytes == _MEMORY_BYTES // _COUNT


@pytest.mark.slow
def test_a_killed_worker_fails_no_search_and_is_replaced(services: Running) -> None:
    retriever = services.retriever
    stop = Event()
    counts = [0] * 8

    def search(number: int) -> None:
        with _connected(retriever.address) as stub:
            while not stop.is_set():
                assert _search(stub) == ["a"]
                counts[number] += 1

    def wait_for_searches(threads: list[Future[None]]) -> None:
        """Waits until every thread has made 50 more searches, or has failed."""
        targets = [count + 50 for count in counts]
        until(
            lambda: all(map(ge, counts, targets)) or any(thread.done() for thread in threads),
        )

    with ThreadPoolExecutor(8) as pool:
        threads = [pool.submit(search, number) for number in range(8)]
        try:
            wait_for_searches(threads)
            before = retriever.children
            busiest = max(before, key=lambda pid: _connections(pid, int(retriever.port)))
            os.kill(busiest, signal.SIGKILL)
            until(lambda: _served(retriever) == _COUNT + 1)
            wait_for_searches(threads)
        finally:
            stop.set()
        for thread in threads:
            thread.result()
    assert len(retriever.children) == _COUNT
    assert retriever.children & before == before - {busiest}


@pytest.mark.slow
def test_workers_wait_for_a_store_and_a_killed_worker_is_replaced(data_dir: Path) -> None:
    with started(RETRIEVER, data_dir, _WORKERS) as retriever:
        until(lambda: retriever.log.count("waiting_for_store") == _COUNT)
        os.kill(min(retriever.children), signal.SIGKILL)
        until(lambda: retriever.log.count("waiting_for_store") == _COUNT + 1)
        with started(INDEXER, data_dir) as indexer:
            indexer.wait_until_serving()
            until(lambda: _served(retriever) == _COUNT)
            with Client(indexer.address, retriever.address) as client:
                client.ingest("t", Document("Cats sleep.", "a"))
                assert len(client.search("t", "x").passages) == 1


# These tests stop or kill a service.


def test_a_stop_drains_running_searches_and_leaves_no_process(
    services: Running, metrics_address: str
) -> None:
    client, retriever = services.client, services.retriever
    workers = retriever.children
    with ThreadPoolExecutor(6) as callers, ExitStack() as connections:
        stubs = [connections.enter_context(_connected(retriever.address)) for _ in range(6)]
        for stub in stubs:
            _search(stub)
        request = retriever_pb2.SearchRequest(
            tenant_id="t", text="x", min_sequence=client.index_status("t").committed_sequence + 1
        )
        waiting = [callers.submit(stub.Search, request, timeout=PATIENCE_S) for stub in stubs]
        until(lambda: Scrape(metrics_address).total("hrag_calls_running") == len(waiting))
        retriever.terminate()
        until(lambda: retriever.log.count("] stopping ") >= _COUNT)
        assert retriever.is_running
        assert not any(call.done() for call in waiting)
        client.ingest("t", Document("Dogs bark.", "b"))
        assert all(len(call.result(PATIENCE_S).passages) == 2 for call in waiting)
    assert retriever.wait() == 0
    assert not _alive(workers)


@pytest.mark.slow
@pytest.mark.parametrize("count", ["1", "3"])
@pytest.mark.parametrize("drain_s", ["0.5", "8"])
def test_a_stop_under_load_takes_little_longer_than_the_drain(
    data_dir: Path, count: str, drain_s: str
) -> None:
    """Some of the searches wait for a write that never happens, for longer than the test does."""
    settings = {**FAST, "HRAG_WORKERS": count, "HRAG_DRAIN_S": drain_s}
    with running(data_dir, settings) as services, ThreadPoolExecutor(8) as callers:
        services.client.ingest("t", Document("Cats sleep.", "a"))
        until(lambda: _served(services.retriever) == int(count))
        never = retriever_pb2.SearchRequest(tenant_id="t", text="x", min_sequence=10_000)
        begun = Semaphore(0)

        def search(number: int) -> None:
            """Searches until the service stops."""
            with _connected(services.retriever.address) as stub, suppress(grpc.RpcError):
                if number < 2:
                    waiting = stub.Search.future(never, timeout=600)
                    begun.release()
                    waiting.result()
                while True:
                    assert _search(stub) == ["a"]
                    begun.release()

        loads = [callers.submit(search, number) for number in range(8)]
        for _ in range(10 * len(loads)):
            assert begun.acquire(timeout=PATIENCE_S)
        workers = services.retriever.children
        assert services.retriever.stop() == 0
        assert not _alive(workers)
        for load in loads:
            load.result(PATIENCE_S)


@pytest.mark.slow
def test_workers_do_not_outlive_their_supervisor(services: Running) -> None:
    workers = services.retriever.children
    services.retriever.kill()
    until(lambda: not _alive(workers))
    assert services.retriever.log.count("stdin_closed") == _COUNT


@pytest.mark.slow
def test_no_process_outlives_a_killed_hrag_serve(data_dir: Path) -> None:
    indexer, retriever = free_addresses(2)
    command = [sys.executable, "-c", "from hrag.cli import main; main()", "serve"]
    command += ["--data-dir", str(data_dir), "--workers", "2"]
    command += ["--indexer-address", indexer, "--retriever-address", retriever]
    with subprocess.Popen(command, env={**os.environ, **FAST}, stdout=subprocess.PIPE) as serve:
        assert serve.stdout is not None
        try:
            assert any(b"Ctrl-C" in line for line in serve.stdout)
            services = children_of(serve.pid)
            workers = {pid for service in services for pid in children_of(service)}
            assert (len(services), len(workers)) == (2, 2)
        finally:
            serve.kill()
        until(lambda: not _alive(services | workers))


# In these tests, a service fails to start.


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        pytest.param("HRAG_THREADS", "0", id="common"),
        pytest.param("HRAG_WORKERS", "257", id="count"),
        pytest.param(
            "OPENAI_BASE_URL", "nonsense", id="seen by workers only", marks=pytest.mark.slow
        ),
    ],
)
def test_an_invalid_setting_ends_all_processes_with_code_2(
    data_dir: Path, variable: str, value: str
) -> None:
    settings = {**_WORKERS, "HRAG_EMBEDDER": "openai", variable: value}
    retriever = Process(RETRIEVER, data_dir, settings)
    try:
        assert retriever.wait() == 2
    finally:
        retriever.kill()
    assert variable in retriever.log
    assert value in retriever.log


@pytest.mark.parametrize("count", [1, pytest.param(_COUNT, marks=pytest.mark.slow)])
def test_the_port_of_workers_cannot_be_bound_by_another_service(
    services: Running, count: int
) -> None:
    address = services.retriever.address
    settings = {**FAST, "HRAG_WORKERS": str(count)}
    second = Process(RETRIEVER, services.data_dir, settings, address)
    try:
        assert second.wait() == 1
    finally:
        second.kill()
    assert f"cannot listen on {address}" in second.log
    # Both retrievers write to one log file. Only the first retriever has started workers.
    assert second.log.count("worker_started") == _COUNT


@pytest.mark.slow
def test_workers_do_not_start_at_a_port_in_use(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        retriever = Process(RETRIEVER, data_dir, _WORKERS, address)
        try:
            assert retriever.wait() == 1
        finally:
            retriever.kill()
    assert f"cannot listen on {address}" in retriever.log
    assert "worker_started" not in retriever.log
