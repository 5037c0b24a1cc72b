"""Measures the memory and processor time of processes with figures of the kernel.

Memory is RssAnon, the memory that a process has allocated. Pages of LMDB's map belong to the
kernel's cache: they count as RssFile, and the kernel evicts them when memory is needed.
"""

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.servers.processes import Process

ROOT = Path(__file__).resolve().parent.parent.parent
MB = 1e6

_KIB = 1024
_SAMPLE_S = 0.2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE_S = 1.0
# A process is idle if it uses at most this share of a core. Threads that only poll use less.
_IDLE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Memory:
    """The resident memory of a process: allocated memory, and memory that is mapped from files."""

    anon_bytes: int
    file_bytes: int

    @property
    def resident_bytes(self) -> int:
        return self.anon_bytes + self.file_bytes

    def __str__(self) -> str:
        return f"{self.anon_bytes / MB:.0f} MB allocated, {self.file_bytes / MB:.0f} MB of files"


def memory_of(process: Process) -> Memory:
    """Returns the current resident memory of the process."""
    return memory_of_pid(process.pid)


def memory_of_pid(pid: int) -> Memory:
    """Returns the current resident memory of the process with this id."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    anon, file = (int(fields[name].split()[0]) * _KIB for name in ("RssAnon", "RssFile"))
    return Memory(anon, file)


def processor_s(process: Process) -> float:
    """Returns the processor time of all threads of the process so far, in seconds."""
    stat = Path(f"/proc/{process.pid}/stat").read_text("ascii")
    # This list begins with field 3. Fields 14 and 15 are the times in user and kernel mode.
    after_name = stat.rpartition(")")[2].split()
    return sum(map(int, after_name[11:13])) / _TICKS_PER_S


def number_from(module: str, *arguments: object) -> float:
    """Runs a module in a new process; returns the number that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return float(ran.stdout)


def wait_until_idle(process: Process, timeout_s: float) -> None:
    """Waits until the process has been idle for a second. Fails after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while True:
        before = processor_s(process)
        time.sleep(_IDLE_S)
        if processor_s(process) - before <= _IDLE_SHARE * _IDLE_S:
            return
        assert time.monotonic() < end, f"{process.service.name} is busy after {timeout_s} s"


class MemorySampler:
    """Measures the allocated memory of a process again and again inside its `with` block."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.first_bytes = self.peak_bytes = memory_of(process).anon_bytes

    @property
    def grown_bytes(self) -> int:
        """The peak of the allocated memory minus its first value."""
        return self.peak_bytes - self.first_bytes

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, memory_of(self._process).anon_bytes)
