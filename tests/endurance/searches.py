"""One client that searches on and on, in a process of its own.

It shares no interpreter with the load that runs beside it, so what it measures is the
service. It notes when each search began and how long it took; windows of time are then
compared: quiet against busy, in one run, asked by the same client in the same way.
"""

import sys
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import PIPE, Popen

import numpy as np
from numpy.typing import NDArray

from hrag.client import Client
from tests.endurance.processes import ROOT

_ROW_BYTES = 16  # When it began and how long it took.
_WARM_UP = 50  # The first search loads the collection, and connections open.
_START_S = 30.0
_STOP_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Window:
    """Searches that began within some time, `float64[n]` milliseconds each."""

    took_ms: NDArray[np.float64]

    def percentile_ms(self, percent: float) -> float:
        return float(np.percentile(self.took_ms, percent))

    def __str__(self) -> str:
        p50, p99, top = np.percentile(self.took_ms, [50, 99, 100])
        return f"p50 {p50:.2f}, p99 {p99:.2f}, max {top:.2f} ms of {len(self.took_ms):,}"


class Searcher:
    """The process from outside. Its figures can be read at any time."""

    def __init__(self, figures: Path) -> None:
        self._figures = figures

    def between(self, start: float, end: float) -> Window:
        """The searches that began between two readings of `time.monotonic`."""
        rows = np.frombuffer(self._figures.read_bytes()).reshape(-1, 2)
        chosen = (rows[:, 0] >= start) & (rows[:, 0] < end)
        return Window(rows[chosen, 1] * 1e3)

    def during(self, seconds: float) -> Window:
        """Waits, and returns the searches that began meanwhile."""
        start = time.monotonic()
        time.sleep(seconds)
        return self.between(start, time.monotonic())


@contextmanager
def searching(folder: Path, retriever: str, tenant_id: str, every_s: float) -> Iterator[Searcher]:
    """Searches a tenant's default collection until the block ends; no search may fail.

    `every_s` is from the beginning of one search to that of the next; 0 is a closed loop.
    """
    figures, errors = folder / "searches.f64", folder / "searches.log"
    figures.touch()
    command = [sys.executable, "-m", __name__, retriever, tenant_id, str(every_s), str(figures)]
    with errors.open("wb") as log, Popen(command, cwd=ROOT, stdin=PIPE, stderr=log) as process:
        try:
            _wait_until_warm(process, figures, errors)
            yield Searcher(figures)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(_STOP_S) == 0, errors.read_text("utf-8")
        finally:
            process.kill()


def _wait_until_warm(process: Popen[bytes], figures: Path, errors: Path) -> None:
    until = time.monotonic() + _START_S
    while figures.stat().st_size < _WARM_UP * _ROW_BYTES:
        assert process.poll() is None, errors.read_text("utf-8")
        assert time.monotonic() < until, f"no {_WARM_UP} searches in {_START_S} s"
        time.sleep(_POLL_S)


def main(retriever: str, tenant_id: str, every_s: str, figures: str) -> None:
    """Searches until standard input ends."""
    stopping = threading.Event()
    threading.Thread(target=_set_at_end, args=(stopping,), daemon=True).start()
    with Client(retriever=retriever) as client, Path(figures).open("ab", buffering=0) as out:
        for number in count():
            began = time.monotonic()
            found = client.search(tenant_id, f"query {number}")
            took = time.monotonic() - began
            assert found.passages, found
            out.write(array("d", (began, took)).tobytes())
            if stopping.wait(max(0.0, float(every_s) - took)):
                return


def _set_at_end(stopping: threading.Event) -> None:
    sys.stdin.read()
    stopping.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
