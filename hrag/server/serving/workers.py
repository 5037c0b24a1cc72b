"""Worker processes that serve at one address, and their supervisor.

The supervisor binds the address and answers no call itself. A worker runs the same command as the
supervisor, with `--worker ADDRESS` appended. All workers listen at the address with SO_REUSEPORT,
and the kernel distributes connections among them.

Each worker is bound to some of the processor cores (`cores_of`). Its standard input is a socket to
the supervisor. Through this socket the worker reports that it serves. When the socket closes, the
worker knows that the supervisor has ended. A worker that exits is replaced. If a worker exits with
an error before any worker has served, the other workers would fail too, so the supervisor exits
with the same code. This module does not depend on the service that the workers run.
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
# If a worker exits within this time after its start, the delay before the next start grows.
_HEALTHY_AFTER_S = 10.0
_CLOSE_S = 1.5  # A worker has this time to close its resources after its last call has ended.
_WILDCARDS = ("0.0.0.0", "[::]")


def worker_command() -> list[str]:
    """Returns the command line that started this process, with the options of Python itself."""
    return [sys.executable, *sys.orig_argv[1:]]


def worker_address(arguments: Sequence[str]) -> str | None:
    """Returns the address after `--worker` in the command-line arguments of a worker.

    Returns None if the arguments are not those of a worker.
    """
    return arguments[-1] if list(arguments[-2:-1]) == [_FLAG] else None


def supervise(
    command: Sequence[str],
    metrics_ports: list[int],
    address: str,
    drain_s: float,
    stopping: threading.Event,
    on_serving: Callable[[], None] | None = None,
) -> None:
    """Keeps one worker for each element of `metrics_ports` running until `stopping` is set.

    `address` is `host:port`; with port 0 the system chooses a free port. `metrics_ports` is
    updated with the metrics port of each worker, or 0 while the worker does not serve. Calls
    `on_serving` once the first worker serves. After `stopping` is set, the calls of workers may
    finish within `drain_s` seconds. A worker that has not exited `_CLOSE_S` seconds later is
    killed. Raises ServiceUnavailable if the address cannot be bound. Raises SystemExit with the
    exit code of a worker that fails before any worker has served.
    """
    with reserve_address(address) as shared:
        cores = cores_of(len(metrics_ports), sorted(os.sched_getaffinity(0)))
        slots = [_WorkerSlot([*command, _FLAG, shared], worker_cores) for worker_cores in cores]
        try:
            code = _keep_running(slots, metrics_ports, stopping, on_serving)
        finally:
            _stop(slots, drain_s)
    if code:
        sys.exit(code)


def cores_of(workers: int, cores: Sequence[int]) -> list[Sequence[int]]:
    """Returns for each worker the processor cores on which it may run.

    Each worker gets adjacent cores. If there are more workers than cores, several workers share a
    core. Workers are bound to few cores because Python's interpreter lock lets one thread of a
    process run at a time: if the threads of a worker ran on many cores, each change of the running
    thread would wake another core. Without bound cores, a search by vector used 1.4 times as much
    processor time.
    """
    starts = [index * len(cores) // workers for index in range(workers + 1)]
    return [cores[start : max(end, start + 1)] for start, end in pairwise(starts)]


@contextmanager
def reserve_address(address: str) -> Iterator[str]:
    """Binds `address` without listening, so that several worker processes can listen there.

    Yields the address with the port that was bound. Raises ServiceUnavailable if the address is in
    use, or if another supervisor has reserved the address.
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
    if host in _WILDCARDS:  # With a wildcard address, gRPC listens on IPv4 and IPv6.
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = addresses[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # The socket first binds the port exclusively and then shares the port. If SO_REUSEPORT were
        # set before the bind, the socket would share the port of another supervisor. SO_REUSEADDR
        # is needed because connections of an earlier service may still be closing.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        bound.close()
        raise
    return bound


@dataclass(frozen=True, slots=True)
class _Worker:
    """A worker process, and the supervisor's end of the socket that is its standard input."""

    process: subprocess.Popen[bytes]
    link: socket.socket
    started: float

    def read_report(self) -> bytes:
        """Returns the worker's report: the worker's metrics port, followed by a line end.

        A worker sends one report. Returns no bytes if the report has not arrived or was read
        before.
        """
        try:
            return self.link.recv(_REPORT_BYTES)
        except OSError:  # No report has arrived.
            return b""

    def close(self) -> None:
        """Closes the supervisor's end of the socket, and logs that the worker has exited."""
        self.link.close()
        _log.info("worker_exited", worker=self.process.pid, code=self.process.returncode)


class _WorkerSlot:
    """Runs one worker at a time, and starts a new worker after the worker has exited."""

    def __init__(self, command: Sequence[str], cores: Sequence[int]) -> None:
        self.worker: _Worker | None = None
        self.has_served = False
        self.metrics_port = 0
        self._command = command
        self._cores = cores
        self._backoff = RestartBackoff()
        self._start_at = 0.0

    def poll(self) -> int | None:
        """Starts a worker if no worker runs and the delay before a new worker is over.

        Returns the exit code if the worker has exited since the last call, else None.
        """
        worker = self.worker
        if worker is None:
            if time.monotonic() >= self._start_at:
                self._start()
            return None
        # The exit code is read first. If the report were read first, a worker could report and exit
        # between the two reads, and the report would be lost.
        code = worker.process.poll()
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
        except OSError as error:  # No memory or no process id is free, perhaps only for a moment.
            _log.warning("worker_start_failed", problem=str(error))
            self._back_off(0.0)

    def _back_off(self, lifetime_s: float) -> None:
        self._start_at = time.monotonic() + self._backoff.delay_s(lifetime_s)


class RestartBackoff:
    """Computes the delay before a worker that has exited is replaced.

    The delay is short at first. It doubles, up to `_MAX_DELAY_S`, each time a worker has run for
    less than `_HEALTHY_AFTER_S` seconds. It is short again after a worker has run for longer.
    """

    def __init__(self) -> None:
        self._next_s = _MIN_DELAY_S

    def delay_s(self, lifetime_s: float) -> float:
        """Returns the delay, in seconds, before a worker that ran for `lifetime_s` is replaced."""
        delay_s = _MIN_DELAY_S if lifetime_s >= _HEALTHY_AFTER_S else self._next_s
        self._next_s = min(2 * delay_s, _MAX_DELAY_S)
        return delay_s


def _start_worker(command: Sequence[str], cores: Sequence[int]) -> _Worker:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        try:
            # Popen closes all other file descriptors in the worker, including the sockets to other
            # workers.
            process = subprocess.Popen(command, stdin=theirs.fileno())
        except OSError:
            ours.close()
            raise
    # An error of sched_setaffinity is ignored: the worker may have exited already, or a sandbox may
    # forbid the call.
    with suppress(OSError):
        # The worker's CPU cores are chosen now, before it starts threads, because new threads
        # inherit this choice.
        os.sched_setaffinity(process.pid, cores)
    _log.info("worker_started", worker=process.pid)
    return _Worker(process, ours, time.monotonic())


def _keep_running(
    slots: Sequence[_WorkerSlot],
    metrics_ports: list[int],
    stopping: threading.Event,
    on_serving: Callable[[], None] | None,
) -> int:
    """Starts the workers, and replaces each worker that exits until `stopping` is set.

    Returns 0, or the exit code of a worker that failed before any worker has served.
    """
    while not stopping.is_set():
        for slot in slots:
            code = slot.poll()
            # A negative exit code means that a signal ended the worker. The other workers would not
            # fail for the same reason, so the supervisor continues.
            if code is not None and code > 0 and not any(other.has_served for other in slots):
                return code
        metrics_ports[:] = [slot.metrics_port for slot in slots]
        if on_serving is not None and any(slot.has_served for slot in slots):
            on_serving()
            on_serving = None
        stopping.wait(_POLL_S)
    return 0


def _stop(slots: Sequence[_WorkerSlot], drain_s: float) -> None:
    """Terminates all workers and waits for their exit; kills workers that do not exit in time."""
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
