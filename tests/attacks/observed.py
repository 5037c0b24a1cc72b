"""Measures how an attack affects a service: health checks, searches, memory and threads.

Time in which the machine stops does not count.
"""

import os
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.attacks.uptime_clock import uptime_s
from tests.support.servers.processes import Process

# The most seconds that a health check or a search of another tenant may take during an attack.
# On a machine without other work they take a tenth of this time.
MAX_S = 1.0
# The largest allowed ratio of a search's p99 during an attack to its p99 before the attack.
# On a machine without other work the ratio is 3.
MAX_RATIO = 10.0
MAX_GROWTH_BYTES = 300 << 20


def health_s(process: Process) -> float:
    """Returns the seconds that a health check over a new connection takes."""
    began = uptime_s()
    with grpc.insecure_channel(process.address) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        response = check(health_pb2.HealthCheckRequest(), timeout=60)
    assert response.status == health_pb2.HealthCheckResponse.SERVING
    return uptime_s() - began


def typical_s(call: Callable[[], object], times: int = 11) -> float:
    """Returns the median duration of `times` calls, in seconds.

    A short pause of the machine does not change the median.
    """
    return statistics.median(seconds(call) for _ in range(times))


def p99_s(call: Callable[[], object], times: int = 200) -> float:
    """Returns the 99th percentile of the durations of `times` calls, in seconds."""
    return statistics.quantiles([seconds(call) for _ in range(times)], n=100)[-1]


def seconds(call: Callable[[], object]) -> float:
    began = uptime_s()
    call()
    return uptime_s() - began


def memory_bytes(process: Process) -> int:
    """Returns the resident memory of a service."""
    return _status(process, "VmRSS") * 1024


def processor_s(process: Process) -> float:
    """Returns the processor time that a service has used since its start, in seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def threads_of(process: Process) -> int:
    return _status(process, "Threads")


def _status(process: Process, field: str) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])


@contextmanager
def repeated(call: Callable[[], object], threads: int) -> Iterator[None]:
    """Repeats a call in several threads inside the block; ignores its errors."""
    ending = threading.Event()

    def repeat() -> None:
        while not ending.is_set():
            try:
                call()
            except Exception:
                ending.wait(0.001)

    started = [threading.Thread(target=repeat, daemon=True) for _ in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in started:
            thread.join()
