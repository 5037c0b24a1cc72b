"""Runs the indexer, the retriever and optionally a gateway as child processes.

Each child is an ordinary program: it reads its settings from the environment, SIGTERM stops it, and
its exit code says why it ended. Each child has a separate process group, so that Ctrl-C reaches
only this process. This process then stops the children.

A child's standard input is a socket, and only this process has the other end open. If this
process is killed, the children read the end of their input and stop. Through this socket a child
also reports that it serves. So this process needs no certificate and no key to ask a child.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hrag.cli.terminal import ExitCode, Failure
from hrag.host.addresses import dial_address

if TYPE_CHECKING:
    from hrag.config import CommonSettings, GatewaySettings

_POLL_S = 0.05
_WATCH_S = 0.2
# The file with the first and the last ephemeral port, and Linux's default for the first one.
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_EPHEMERAL_PORT = 32_768
# Few services listen at ports from here to the ephemeral ones. Only root may use lower ones than
# the first unprivileged port.
_FIRST_FREE_PORT = 10_000
_FIRST_UNPRIVILEGED_PORT = 1024
_LAST_PORT = 65_535
_PORTS_TRIED = 1000
_WRONG_SETTING = 2  # A service ends with this exit code if a setting is invalid.
# The exit codes of a service that was stopped without a problem. The code is -SIGTERM if the
# service was stopped before it had installed its signal handler.
_CLEAN_CODES = (0, -signal.SIGTERM)


class ServiceFailed(Failure):
    """A service has ended unexpectedly, or could not be started."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service that the command line can start.

    `health_name` is the service's name in gRPC health checks. `address_variable` is the environment
    variable with the address at which the service listens.
    """

    name: str
    health_name: str
    address_variable: str
    module: str
    """The Python module to run with `-m`."""


INDEXER = Service("indexer", "hrag.v1.IndexerService", "HRAG_INDEXER_ADDRESS", module="indexer_svc")
RETRIEVER = Service(
    "retriever", "hrag.v1.RetrieverService", "HRAG_RETRIEVER_ADDRESS", module="retriever_svc"
)
GATEWAY = Service("gateway", "", "HRAG_HTTP_ADDRESS", module="hrag.gateway")


@dataclass(frozen=True, slots=True)
class _Child:
    service: Service
    address: str
    process: subprocess.Popen[bytes]
    status: socket.socket

    def reports_serving(self) -> bool:
        """Returns True if the child process has reported that it serves.

        The report is one byte, which this call reads. So do not call it again after it has returned
        True.
        """
        try:
            return bool(self.status.recv(1))
        except BlockingIOError:
            return False


class ServiceProcesses:
    """Runs the indexer, the retriever and optionally a gateway on one store.

    A context manager: the processes run inside the `with` block.

    Arguments: `data_dir` is the folder of the store. `indexer`, `retriever` and `http` are the
    addresses at which the indexer, the retriever and the gateway listen; if `http` is empty, there
    is no gateway. `logs` is the folder for the file `<name>.log` of each process; if it is None,
    the processes write to the outputs of this process. `settings` are environment variables for the
    processes, in addition to those of this process. If a process does not stop within `stop_s`
    seconds, all processes are killed. If `stop_s` is None, only the drain time of the services
    limits how long a process takes to stop.
    """

    def __init__(
        self,
        data_dir: Path,
        indexer: str,
        retriever: str,
        *,
        http: str = "",
        logs: Path | None = None,
        settings: Mapping[str, str] | None = None,
        stop_s: float | None = None,
    ) -> None:
        self.indexer = indexer
        self.retriever = retriever
        self.addresses = {INDEXER: indexer, RETRIEVER: retriever}
        if http:
            self.addresses[GATEWAY] = http
        self._logs = logs
        self._stop_s = stop_s
        self._children: list[_Child] = []
        self.environment = {
            **os.environ,
            **(settings or {}),
            "HRAG_DATA_DIR": str(data_dir),
            "HRAG_STOP_ON_EOF": "true",
            **{service.address_variable: value for service, value in self.addresses.items()},
        }

    def __enter__(self) -> Self:
        """Starts all services.

        Raises ServiceFailed if another program already listens at one of the addresses.
        """
        for service, address in self.addresses.items():
            _require_free(service, address)
        with ExitStack() as undo:
            undo.callback(self.stop)
            for service, address in self.addresses.items():
                self._children.append(self._start(service, address))
            undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def wait_until_serving(self, timeout_s: float | None = None) -> None:
        """Waits until all services serve.

        Raises ServiceFailed if a service ends, or if a service does not serve after `timeout_s`
        seconds. None means that there is no time limit.
        """
        deadline = time.monotonic() + (float("inf") if timeout_s is None else timeout_s)
        for child in self._children:
            while not child.reports_serving():
                self.check_alive()
                if time.monotonic() > deadline:
                    raise ServiceFailed(
                        f"the {child.service.name} at {child.address} does not serve "
                        f"after {timeout_s:.0f} s"
                    )
                time.sleep(_POLL_S)
        self.check_alive()

    def watch(self) -> None:
        """Blocks until a service ends, then raises ServiceFailed."""
        while True:
            self.check_alive()
            time.sleep(_WATCH_S)

    def check_alive(self) -> None:
        """Raises ServiceFailed with the name and the exit code of a service that has ended."""
        for child in self._children:
            code = child.process.poll()
            if code is not None:
                raise _failed(child.service, code)

    def stop(self) -> None:
        """Stops all services and waits until they have ended.

        Kills all services if Ctrl-C is pressed meanwhile, or if a service does not stop within the
        seconds `stop_s` that the constructor received.
        """
        try:
            for child in reversed(self._children):
                child.process.terminate()
            for child in reversed(self._children):
                child.process.wait(self._stop_s)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            for child in self._children:
                child.process.kill()
            for child in self._children:
                child.process.wait()
        for child in self._children:
            child.status.close()

    def check_stopped_cleanly(self) -> None:
        """Raises ServiceFailed if the exit code of a service reports a problem.

        Call this method after `stop`.
        """
        for child in self._children:
            # Another Ctrl-C, while `stop` waits for the killed processes, ends `stop` before all
            # processes have ended. So this code waits for the process again.
            code = child.process.wait()
            if code not in _CLEAN_CODES:
                raise _failed(child.service, code)

    def log_tail(self, lines: int = 15) -> str:
        """Returns the last `lines` lines of each service's log.

        A line with the service's name precedes the lines of its log. Returns an empty text if there
        is no folder for logs.
        """
        if self._logs is None:
            return ""
        tails = []
        for child in self._children:
            text = self._log(child.service).read_text("utf-8", "replace")
            tails += [f"{child.service.name}:", *text.splitlines()[-lines:]]
        return "\n".join(tails)

    def _log(self, service: Service) -> Path:
        assert self._logs is not None
        return self._logs / f"{service.name}.log"

    def _start(self, service: Service, address: str) -> _Child:
        # With -P, Python does not import modules from the working directory, where a file could
        # have the name of a module.
        command = [sys.executable, "-P", "-m", service.module]
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, nullcontext() if self._logs is None else self._log(service).open("wb") as log:
            # Popen leaves only standard input, output and error open in the child process. So no
            # child has a copy of the sockets of this process or of other children.
            process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                process_group=0,
            )
        return _Child(service, address, process, ours)


def checked_settings(
    environment: Mapping[str, str], *, with_gateway: bool = False
) -> "list[CommonSettings]":
    """Returns the settings that services with this environment would have.

    Raises Failure if a setting is invalid. Each service would refuse the setting too, but in a log,
    and the other services would start in vain.
    """
    from hrag.config import (  # noqa: PLC0415
        GatewaySettings,
        IndexerSettings,
        RetrieverSettings,
        SettingsError,
        load,
    )

    wanted, before = dict(environment), dict(os.environ)
    try:
        _replace_environment(wanted)
        settings: list[CommonSettings] = [load(IndexerSettings), load(RetrieverSettings)]
        if with_gateway:
            gateway = load(GatewaySettings)
            _check_gateway_tls(gateway)
            settings.append(gateway)
        return settings
    except SettingsError as error:
        raise Failure(str(error), ExitCode.USAGE) from None
    finally:
        _replace_environment(before)


def _check_gateway_tls(gateway: "GatewaySettings") -> None:
    """Raises Failure if the services use TLS, and the gateway beside them would not."""
    if gateway.tls_cert_file is not None and gateway.ca_file is gateway.cert_file is None:
        raise Failure(
            f"HRAG_TLS_CERT_FILE is '{gateway.tls_cert_file}', so the services use TLS: the "
            "gateway of --http connects to them as any client does and needs HRAG_CA_FILE",
            ExitCode.USAGE,
        )


def _replace_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def free_addresses(count: int) -> list[str]:
    """Returns `count` different loopback addresses whose ports are free at the moment.

    Their ports are below the range of ephemeral ports, because the kernel gives an ephemeral port
    to the next connection that needs one, perhaps before the caller listens at it. A process gets
    each port only once, until all were used. Raises ServiceFailed if there are no free ports.
    """
    free = filter(_is_free, islice(_ports(), _PORTS_TRIED))
    addresses = [f"127.0.0.1:{port}" for port in islice(free, count)]
    if len(addresses) < count:
        raise ServiceFailed(f"{_PORTS_TRIED:,} ports of this machine are in use")
    return addresses


@cache
def _ports() -> Iterator[int]:
    """Returns an endless iterator of the ports below the ephemeral ones, from a random one on.

    If too few ports are below them, the ephemeral ones are included.
    """
    try:
        last = int(_EPHEMERAL_PORTS.read_text("ascii").split()[0])
    except OSError:
        last = _FIRST_EPHEMERAL_PORT
    if last < 2 * _FIRST_UNPRIVILEGED_PORT:
        last = _LAST_PORT
    ports = range(min(_FIRST_FREE_PORT, last // 2), last)
    start = random.randrange(len(ports))
    return cycle((*ports[start:], *ports[:start]))


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def with_free_port(address: str) -> str:
    """Returns `address` with port 0 replaced by a free port, so that clients can connect to it."""
    host, colon, port = address.rpartition(":")
    if port != "0":
        return address
    return f"{host}{colon}{free_addresses(1)[0].rpartition(':')[2]}"


def _require_free(service: Service, address: str) -> None:
    host, _, port = dial_address(address).rpartition(":")
    if not port.isdecimal() or not host:
        # The address is not a TCP address, so this function cannot check it. If the address is
        # wrong, the service reports the problem.
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except (OSError, OverflowError, UnicodeError):
        return
    raise ServiceFailed(
        f"{service.address_variable} is {address}: another program listens there already; "
        "stop it or choose another address"
    )


def _failed(service: Service, code: int) -> ServiceFailed:
    wrong_usage = code == _WRONG_SETTING
    return ServiceFailed(
        f"the {service.name} {_exit_text(code)}",
        ExitCode.USAGE if wrong_usage else ExitCode.FAILED,
    )


def _exit_text(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name} (exit code {code})"
    if code == _WRONG_SETTING:
        return f"ended with exit code {code}: a setting is invalid, see its message"
    return f"ended with exit code {code}"
