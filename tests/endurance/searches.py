"""A client that repeats searches in a separate process.

The client shares no interpreter with the load that runs at the same time, so its figures depend
only on the service. It records when each search began and how long the search took. Tests compare
a quiet and a busy period of one run of the same client.
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
from tests.support.until import until

# A row has two float64: the time at which a search began, and its duration.
_ROW_BYTES = 16
# This many searches are made before the `with` block begins, because the first searches are slow:
# they load the collection and open connections.
_WARM_UP = 50
_START_S = 60.0
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Window:
    """The durations of the searches that began in one period: `float64[searches]` milliseconds."""

    took_ms: NDArray[np.float64]

    def percentile_ms(self, percent: float) -> float:
        return float(np.percentile(self.took_ms, percent))

    def __str__(self) -> str:
        p50, p99, top = np.percentile(self.took_ms, [50, 99, 100])
        return f"p50 {p50:.2f}, p99 {p99:.2f}, max {top:.2f} ms of {len(self.took_ms):,}"


class Searcher:
    """Reads the durations of searches that the searching process has recorded so far."""

    def __init__(self, figures: Path) -> None:
        self._figures = figures

    def between(self, start: float, end: float) -> Window:
        """Returns the durations of the searches that began between two times.

        The times are values of `time.monotonic`.
        """
        rows = np.frombuffer(self._figures.read_bytes()).reshape(-1, 2)
        chosen = (rows[:, 0] >= start) & (rows[:, 0] < end)
        return Window(rows[chosen, 1] * 1e3)

    def during(self, seconds: float) -> Window:
        """Waits for `seconds`; returns the durations of the searches that began in this time."""
        start = time.monotonic()
        time.sleep(seconds)
        return self.between(start, time.monotonic())


@contextmanager
def searching(folder: Path, retriever: str, tenant_id: str, every_s: float) -> Iterator[Searcher]:
    """Searches a tenant's default collection until the block ends. Fails if a search fails.

    A search begins every `every_s` seconds. With 0, it begins as soon as the last one has ended.
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
    def is_warm() -> bool:
        assert process.poll() is None, errors.read_text("utf-8")
        return figures.stat().st_size >= _WARM_UP * _ROW_BYTES

    until(is_warm, _START_S)


def main(retriever: str, tenant_id: str, every_s: str, figures: str) -> None:
    """Searches until standard input ends."""
    stopping = threading.Event()
    threading.Thread(target=_set_at_end, args=(stopping,), daemon=True).start()
    with Client(retriever=retriever) as client, Path(figures).open("ab", buffering=0) as out:
        for number in count():
            began = time.monotonic()
            result = client.search(tenant_id, f"query {number}")
            took = time.monotonic() - began
            assert result.passages, result
            out.write(array("d", (began, took)).tobytes())
            if stopping.wait(max(0.0, float(every_s) - took)):
                return


def _set_at_end(stopping: threading.Event) -> None:
    sys.stdin.read()
    stopping.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
