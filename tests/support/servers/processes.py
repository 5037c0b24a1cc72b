"""Both services as real processes on one store, for tests over gRPC.

Settings are passed in the environment. A service is ready when its gRPC health service reports
SERVING. SIGTERM stops a service, and its exit code must then be 0. After both services have
stopped, the whole store is checked.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hrag.cli.processes import INDEXER, RETRIEVER, Service, free_addresses
from hrag.client import Client
from hrag.client.calls import channel_options
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc
from tests.support.servers.forked import Forked
from tests.support.servers.stores import check_store, settings_of
from tests.support.until import PATIENCE_S, until

# The niceness is 0, because an indexer of low priority would seal too late while other tests run.
FAST = {"HRAG_EMBEDDER": "hash:64", "HRAG_INDEXER_NICENESS": "0"}
START_S = PATIENCE_S
STOP_S = 40.0
# A health check that has no answer after this time is repeated.
_HEALTH_S = 20.0
_DEBUG = {"HRAG_LOG_LEVEL": "debug"}


class Program(Protocol):
    """A running program: the methods that `subprocess.Popen` and `Forked` share."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


Start = Callable[[tuple[str, ...], Mapping[str, str], Path], Program]


def fresh(
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    log: Path,
    runner: tuple[str, ...] = (),
) -> "subprocess.Popen[bytes]":
    """Starts a new interpreter, as users do, so that its memory and times are those of users.

    `runner` is a command that runs the command after it.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [*runner, sys.executable, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


class Process:
    """A service process, from its start to its exit code."""

    def __init__(
        self,
        service: Service,
        data_dir: Path,
        settings: Mapping[str, str],
        address: str = "",
        start: Start = Forked,
    ) -> None:
        """Starts the service, on a free port unless `address` is set. Its output goes to a file."""
        self.service = service
        self.address = address or free_addresses(1)[0]
        self._log_path = data_dir.with_name(f"{data_dir.name}-{service.name}-{self.port}.log")
        store, address_setting = settings_of(data_dir), {service.address_variable: self.address}
        environment = {**environ, **_DEBUG, **store, **settings, **address_setting}
        self._process = start(("-m", service.module), environment, self._log_path)

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def children(self) -> set[int]:
        """The process ids of the service's child processes that have not ended."""
        return {pid for pid in children_of(self._process.pid) if is_alive(pid)}

    @property
    def log(self) -> str:
        """The output of this process and of earlier processes at the same port."""
        return self._log_path.read_text("utf-8", "replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until_serving(self, timeout_s: float = START_S) -> None:
        """Waits until the service serves. Fails if it ends before, or after `timeout_s` seconds."""
        until(self._serves_or_fails, timeout_s)

    def _serves_or_fails(self) -> bool:
        assert self.is_running, self.log
        return self.serves()

    def serves(self) -> bool:
        """Returns True if grpc.health.v1 reports SERVING, for the service and for the server."""
        with grpc.insecure_channel(self.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            try:
                requests = map(_health_request, ("", self.service.health_name))
                statuses = {health.Check(each, timeout=_HEALTH_S).status for each in requests}
            except grpc.RpcError:
                return False
        return statuses == {health_pb2.HealthCheckResponse.SERVING}

    def wait(self, timeout_s: float = START_S + STOP_S) -> int:
        """Waits until the process ends by itself; returns its exit code.

        By default, waits long enough for a process that starts, finds an invalid setting and stops.
        """
        return self._process.wait(timeout_s)

    def terminate(self) -> None:
        self._process.terminate()

    def stop(self) -> int:
        """Sends SIGTERM; returns the exit code."""
        self.terminate()
        return self.wait()

    def kill(self) -> None:
        """Kills the process if it still runs."""
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True)
class Running:
    """Both services, ready to serve."""

    data_dir: Path
    indexer: Process
    retriever: Process
    client: Client
    raw_indexer: Any
    """A stub of the indexer without checks and without translation of errors."""
    raw_retriever: Any

    def new_client(self) -> Client:
        """Returns a client with new connections."""
        return Client(self.indexer.address, self.retriever.address)


@contextmanager
def running(
    data_dir: Path, settings: Mapping[str, str] = FAST, start: Start = Forked
) -> Iterator[Running]:
    """Runs both services on the store of `data_dir`; then stops them and checks the store."""
    with (
        started(INDEXER, data_dir, settings, start=start) as indexer,
        started(RETRIEVER, data_dir, settings, start=start) as retriever,
        Client(indexer.address, retriever.address) as client,
        _channel(indexer) as to_indexer,
        _channel(retriever) as to_retriever,
    ):
        indexer.wait_until_serving()
        retriever.wait_until_serving()
        yield Running(
            data_dir,
            indexer,
            retriever,
            client,
            indexer_pb2_grpc.IndexerServiceStub(to_indexer),
            retriever_pb2_grpc.RetrieverServiceStub(to_retriever),
        )
    check_store(data_dir)


def _channel(process: Process) -> grpc.Channel:
    return grpc.insecure_channel(process.address, channel_options(process.address))


@contextmanager
def started(
    service: Service,
    data_dir: Path,
    settings: Mapping[str, str] = FAST,
    address: str = "",
    start: Start = Forked,
) -> Iterator[Process]:
    """Runs one service and stops it after the block, unless the test has already ended it.

    Fails if the exit code is not 0, or if the log has an internal error.
    """
    process = Process(service, data_dir, settings, address, start)
    try:
        yield process
        if process.is_running:
            assert process.stop() == 0, process.log
        assert "internal_error" not in process.log, process.log
    finally:
        process.kill()


def _health_request(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


def children_of(pid: int) -> set[int]:
    """Returns the ids of the child processes that the main thread of a process has started."""
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()))


def is_alive(pid: int) -> bool:
    """Returns True if the process runs. A zombie does not run."""
    return _state(pid) not in "ZX"


def is_stopped(pid: int) -> bool:
    """Returns True if a signal has stopped the process, or if it has ended."""
    return _state(pid) in "TZX"


def _state(pid: int) -> str:
    """Returns the letter of the state of a process; X if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return stat.rpartition(")")[2].split()[0]
