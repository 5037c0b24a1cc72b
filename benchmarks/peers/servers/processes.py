"""Processes of servers: starts one on a free port of the loopback interface, and their times."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.peers.memory import descendants
from hrag.cli.processes import free_addresses

HOST = "127.0.0.1"
_START_S = 60.0
_STOP_S = 30.0
_POLL_S = 0.05
# The fields of /proc/PID/stat after the name, beginning with the state: the time of the process in
# user and kernel mode, and that of its children that have ended.
_TIMES = slice(11, 15)


def free_port() -> int:
    """Returns a port of HOST that is free at the moment; see `free_addresses`."""
    return int(free_addresses(1)[0].rpartition(":")[2])


@contextmanager
def running(
    command: Sequence[str | Path], port: int, log: Path, environment: Mapping[str, str]
) -> Iterator[None]:
    """Runs a server in the block, which begins when the server listens on `port`.

    The server's output is written to `log`. Raises RuntimeError with its last line if the server
    ends or does not listen in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            cwd=log.parent,
        )
    try:
        if not _listens(process, port):
            lines = log.read_text("utf-8", "replace").splitlines()
            raise RuntimeError(f"{command[0]} did not start: {' '.join(lines[-1:])}")
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Waits until the process listens; returns False if it ends or takes too long."""
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return True
        time.sleep(_POLL_S)
    return False


def processor_s(pids: Sequence[int]) -> float:
    """Returns the processor time of these processes, in seconds.

    The time of their descendants is included, even of those that have ended: when a process ends,
    its time is added to that of its parent.
    """
    every = {pid for root in pids for pid in (root, *descendants(root))}
    return sum(map(_ticks, every)) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return 0
    return sum(map(int, text.rpartition(")")[2].split()[_TIMES]))
