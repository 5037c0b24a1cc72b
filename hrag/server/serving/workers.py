"""Worker processes that serve at one address, and their supervisor.

The supervisor binds the address and answers no call itself. A worker runs the supervisor's
own command with `--worker ADDRESS` appended. All workers listen at the address with
SO_REUSEPORT, and the kernel distributes connections over them.

Each worker has cores of its own (`cores_of`), and a socket to the supervisor as its standard
input: through it the worker reports that it serves, and its end tells the worker that the
supervisor has died, for whatever reason. A worker that exits is replaced. If one exits with an
error before any has served, the others would too, and the supervisor exits with the same code.
This module does not know what the workers serve.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise

import structlog

from hrag.host.addresses import MAX_PORT, cannot_listen
from hrag.values.errors import ServiceUnavailable

_log = structlog.get_logger()

_FLAG = "--worker"
_POLL_S = 0.05
_REPORT_BYTES = 16
_MIN_DELAY_S = 0.1
_MAX_DELAY_S = 5.0
_HEALTHY_AFTER_S = 10.0  # A worker that exits earlier makes the next one wait longer.
_CLOSE_S = 1.5  # For a worker to close its resources after it has drained.
_WILDCARDS = ("0.0.0.0", "[::]")


def worker_command() -> list[str]:
    """Returns the command line of this process, with the options of Python itself."""
    return [sys.executable, *sys.orig_argv[1:]]


def worker_address(arguments: Sequence[str]) -> str | None:
    """Returns the address to serve at if `arguments` are those of a worker, else None."""
    return arguments[-1] if list(arguments[-2:-1]) == [_FLAG] else None


def supervise(
    command: Sequence[str],
    metrics_ports: list[int],
    address: str,
    drain_s: float,
    stopping: threading.Event,
    on_serving: Callable[[], None] | None = None,
) -> None:
    """Keeps one worker per element of `metrics_ports` running until `stopping` is set.

    `address` is `host:port`; port 0 takes a free one. `metrics_ports` is updated with the
    metrics port of each worker, 0 while the worker does not serve. Calls `on_serving` once the
    first worker serves. After `stopping`, workers may drain for `drain_s` seconds; one that
    takes much longer is killed. Raises ServiceUnavailable if the address cannot be bound, and
    SystemExit with the exit code of a worker that fails before any has served.
    """
    with reserved(address) as shared:
        cores = cores_of(len(metrics_ports), sorted(os.sched_getaffinity(0)))
        slots = [_WorkerSlot([*command, _FLAG, shared], own) for own in cores]
        try:
            code = _keep_running(slots, metrics_ports, stopping, on_serving)
        finally:
            _stop(slots, drain_s)
    if code:
        sys.exit(code)


def cores_of(workers: int, cores: Sequence[int]) -> list[Sequence[int]]:
    """Divides cores among workers: neighbours together, and one alone may be shared.

    Python's lock lets one thread of a process run at a time. Where they run on several cores,
    each turn wakes another core: a search by vector took 1.4 times as much processor time.
    """
    starts = [each * len(cores) // workers for each in range(workers + 1)]
    return [cores[start : max(end, start + 1)] for start, end in pairwise(starts)]


@contextmanager
def reserved(address: str) -> Iterator[str]:
    """Binds `address` without listening, for processes that share it; yields it with its port.

    Raises ServiceUnavailable if it is in use, also by a reservation of another supervisor.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ServiceUnavailable(
            f"cannot listen on {address}: workers share a TCP port, so the address must be "
            f"host:port with a port from 0 to {MAX_PORT}"
        )
    try:
        bound = _bind(host, int(port))
    except OSError as error:
        raise cannot_listen(address) from error
    with bound:
        yield f"{host}:{bound.getsockname()[1]}"


def _bind(host: str, port: int) -> socket.socket:
    if host in _WILDCARDS:  # gRPC listens on IPv4 and IPv6 for either of them.
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    held = socket.socket(family, kind, protocol)
    try:
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # First bind exclusively (SO_REUSEADDR, because connections of an earlier service may
        # still be closing), then share. A socket that set SO_REUSEPORT before the bind would
        # join the port of another supervisor.
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
    """A worker process, and the supervisor's end of its standard input."""

    process: subprocess.Popen[bytes]
    link: socket.socket
    started: float

    def read_report(self) -> bytes:
        """Returns what the worker reported since the last call: once, its metrics port."""
        try:
            return self.link.recv(_REPORT_BYTES)
        except OSError:  # There is nothing to read.
            return b""

    def close(self) -> None:
        """Releases the socket of a process that has exited."""
        self.link.close()
        _log.info("worker_exited", worker=self.process.pid, code=self.process.returncode)


class _WorkerSlot:
    """Runs one worker at a time and replaces it after its exit."""

    def __init__(self, command: Sequence[str], cores: Sequence[int]) -> None:
        self.worker: _Worker | None = None
        self.has_served = False
        self.metrics_port = 0
        self._command = command
        self._cores = cores
        self._backoff = RestartBackoff()
        self._start_at = 0.0

    def poll(self) -> int | None:
        """Starts a worker if one is due; returns the exit code of a worker that has exited."""
        worker = self.worker
        if worker is None:
            if time.monotonic() >= self._start_at:
                self._start()
            return None
        code = worker.process.poll()  # First: a report that it sent before its exit counts.
        if report := worker.read_report():
            self.has_served = True
            self.metrics_port = int(report)
        if code is not None:
            worker.close()
            self.worker = None
            self.metrics_port = 0
            self._back_off(time.monotonic() - worker.started)
        return code

    def _start(self) -> None:
        try:
            self.worker = _start_worker(self._command, self._cores)
        except OSError as error:  # Out of memory or of process ids; may pass.
            _log.warning("worker_start_failed", problem=str(error))
            self._back_off(0.0)

    def _back_off(self, lifetime_s: float) -> None:
        self._start_at = time.monotonic() + self._backoff.delay_s(lifetime_s)


class RestartBackoff:
    """The delay before a worker is replaced: exponential while workers exit early."""

    def __init__(self) -> None:
        self._next_s = _MIN_DELAY_S

    def delay_s(self, lifetime_s: float) -> float:
        """Returns the seconds to wait after a worker that ran for `lifetime_s` seconds."""
        delay_s = _MIN_DELAY_S if lifetime_s >= _HEALTHY_AFTER_S else self._next_s
        self._next_s = min(2 * delay_s, _MAX_DELAY_S)
        return delay_s


def _start_worker(command: Sequence[str], cores: Sequence[int]) -> _Worker:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        try:
            # Popen closes all other descriptors in it, also the sockets of other workers.
            process = subprocess.Popen(command, stdin=theirs.fileno())
        except OSError:
            ours.close()
            raise
    with suppress(OSError):  # It has exited, or a sandbox does not allow it.
        os.sched_setaffinity(process.pid, cores)  # Before it starts threads, which inherit it.
    _log.info("worker_started", worker=process.pid)
    return _Worker(process, ours, time.monotonic())


def _keep_running(
    slots: Sequence[_WorkerSlot],
    metrics_ports: list[int],
    stopping: threading.Event,
    on_serving: Callable[[], None] | None,
) -> int:
    """Replaces workers until `stopping`; returns 0, or the exit code of a failed start."""
    while not stopping.is_set():
        for slot in slots:
            code = slot.poll()
            # A negative code means a signal, which says nothing about the other workers.
            if code is not None and code > 0 and not any(each.has_served for each in slots):
                return code
        metrics_ports[:] = [slot.metrics_port for slot in slots]
        if on_serving is not None and any(each.has_served for each in slots):
            on_serving()
            on_serving = None
        stopping.wait(_POLL_S)
    return 0


def _stop(slots: Sequence[_WorkerSlot], drain_s: float) -> None:
    """Terminates all workers, then waits for each; kills those that do not stop in time."""
    workers = [slot.worker for slot in slots if slot.worker is not None]
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
