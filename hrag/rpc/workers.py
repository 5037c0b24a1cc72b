"""Several processes that serve at one address: a supervisor and its workers.

The supervisor holds the address and answers nothing itself. A worker is the supervisor's
own command again, with `--worker ADDRESS` behind it. All workers listen there by
SO_REUSEPORT, and the kernel spreads connections over them.

A socket ties each worker to the supervisor, as the worker's standard input: the worker says
through it that it serves, and its end says that the supervisor is gone, however that died.
A worker that ends is replaced; but if one refuses to run before any has served, all would,
and the supervisor ends with its exit code. Knows nothing of what is served.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from hrag.errors import ServiceUnavailable
from hrag.net.addresses import MAX_PORT

_log = structlog.get_logger()

_FLAG = "--worker"
_POLL_S = 0.05
_SAID_BYTES = 16
_FIRST_DELAY_S = 0.1
_LAST_DELAY_S = 5.0
_YOUNG_S = 10.0  # A worker that ends younger makes the next one wait longer.
_CLOSE_S = 1.5  # For a worker to close what it has open, once its calls have ended.
_WILDCARDS = ("0.0.0.0", "[::]")


def own_command() -> list[str]:
    """The command that started this process, with Python's own options."""
    return [sys.executable, *sys.orig_argv[1:]]


def worker_address(arguments: Sequence[str]) -> str | None:
    """The address to serve at if `arguments` are a worker's, else None."""
    return arguments[-1] if list(arguments[-2:-1]) == [_FLAG] else None


def supervise(
    command: Sequence[str],
    metrics_ports: list[int],
    address: str,
    drain_s: float,
    stopping: threading.Event,
    on_serving: Callable[[], None] | None = None,
) -> None:
    """Keeps workers running at `address`, `host:port`, until `stopping` is set.

    As many as there are `metrics_ports`, which are kept up to date: of each place the port
    at which its worker shows its metrics, 0 while none serves there. Calls `on_serving` once
    the first of them serves. Port 0 in `address` takes a free one. Once `stopping`, the
    workers may drain for `drain_s` seconds; one that takes much longer is killed. Raises
    ServiceUnavailable if the address cannot be had, SystemExit with the exit code of a worker
    that refuses to run before any has served.
    """
    with reserved(address) as shared:
        crew = [_Place([*command, _FLAG, shared]) for _ in metrics_ports]
        try:
            code = _keep_running(crew, metrics_ports, stopping, on_serving)
        finally:
            _stop(crew, drain_s)
    if code:
        sys.exit(code)


@contextmanager
def reserved(address: str) -> Iterator[str]:
    """Holds `address` without listening, for processes that share it; yields it, port known.

    Raises ServiceUnavailable if anyone has it, be it by a reservation of the same kind.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ServiceUnavailable(
            f"cannot listen on {address}: workers share a TCP port, so the address must be "
            f"host:port with a port from 0 to {MAX_PORT}"
        )
    try:
        held = _bound(host, int(port))
    except OSError as error:
        raise ServiceUnavailable(
            f"cannot listen on {address}: it is in use or no address of this machine"
        ) from error
    with held:
        yield f"{host}:{held.getsockname()[1]}"


def _bound(host: str, port: int) -> socket.socket:
    if host in _WILDCARDS:  # gRPC takes both families for either, where there are both.
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    held = socket.socket(family, kind, protocol)
    try:
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Bound alone, past connections that an earlier service left closing; only then are
        # others let in. A socket that shared from the start would join another supervisor's.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        held.close()
        raise
    return held


@dataclass(frozen=True, slots=True)
class _Worker:
    """A process, and our side of the socket that is its standard input."""

    process: subprocess.Popen[bytes]
    link: socket.socket
    began: float

    def said(self) -> bytes:
        """What it has said since this was asked last; once, that it serves."""
        try:
            return self.link.recv(_SAID_BYTES)
        except OSError:  # Nothing to read now.
            return b""

    def close(self) -> None:
        """After its end."""
        self.link.close()
        _log.info("worker_ended", worker=self.process.pid, code=self.process.returncode)


class _Place:
    """Where a worker runs, and after its end the next."""

    def __init__(self, command: Sequence[str]) -> None:
        self.worker: _Worker | None = None
        self.has_served = False
        self.metrics_port = 0
        self._command = command
        self._pause = Pause()
        self._due = 0.0

    def tend(self) -> int | None:
        """Starts a worker if one is due; returns the exit code of one that has ended."""
        worker = self.worker
        if worker is None:
            if time.monotonic() >= self._due:
                self._start()
            return None
        code = worker.process.poll()  # First: what it said before it ended still counts.
        if said := worker.said():
            self.has_served = True
            self.metrics_port = int(said)
        if code is not None:
            worker.close()
            self.worker = None
            self.metrics_port = 0
            self._wait(time.monotonic() - worker.began)
        return code

    def _start(self) -> None:
        try:
            self.worker = _started(self._command)
        except OSError as error:  # No memory or no process id for it now.
            _log.warning("worker_not_started", problem=str(error))
            self._wait(0.0)

    def _wait(self, lived_s: float) -> None:
        self._due = time.monotonic() + self._pause.after(lived_s)


class Pause:
    """How long to wait before a worker is replaced: doubling while they die young."""

    def __init__(self) -> None:
        self._next_s = _FIRST_DELAY_S

    def after(self, lived_s: float) -> float:
        """Seconds to wait after a worker that lived for `lived_s` seconds."""
        pause_s = _FIRST_DELAY_S if lived_s >= _YOUNG_S else self._next_s
        self._next_s = min(2 * pause_s, _LAST_DELAY_S)
        return pause_s


def _started(command: Sequence[str]) -> _Worker:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        try:
            # All other files of ours are closed in it, the sockets of other workers too.
            process = subprocess.Popen(command, stdin=theirs.fileno())
        except OSError:
            ours.close()
            raise
    _log.info("worker_started", worker=process.pid)
    return _Worker(process, ours, time.monotonic())


def _keep_running(
    crew: Sequence[_Place],
    metrics_ports: list[int],
    stopping: threading.Event,
    on_serving: Callable[[], None] | None,
) -> int:
    """Replaces workers that end; returns 0 when it is time to stop, or a refusal's code."""
    while not stopping.is_set():
        for place in crew:
            code = place.tend()
            # Below 0 a signal ended it, which says nothing about the others.
            if code is not None and code > 0 and not any(each.has_served for each in crew):
                return code
        metrics_ports[:] = [place.metrics_port for place in crew]
        if on_serving is not None and any(each.has_served for each in crew):
            on_serving()
            on_serving = None
        stopping.wait(_POLL_S)
    return 0


def _stop(crew: Sequence[_Place], drain_s: float) -> None:
    """Tells all workers first, then waits for each."""
    workers = [place.worker for place in crew if place.worker is not None]
    for worker in workers:
        worker.process.terminate()
    until = time.monotonic() + drain_s + _CLOSE_S
    for worker in workers:
        try:
            worker.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            _log.warning("worker_killed", worker=worker.process.pid, problem="it did not stop")
            worker.process.kill()
            worker.process.wait()
        worker.close()
