"""Callers that search one query after the other, each in a thread of its own."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class Load:
    """The seconds of every search, and from the first search's start to the last one's end."""

    took_s: list[float]
    elapsed_s: float


class Callers(Generic[Q]):
    """Callers begin together, each at another query; the search that passes the end is the last."""

    def __init__(
        self, searches: Sequence[Callable[[Q], object]], queries: Sequence[Q], seconds: float
    ) -> None:
        """There is a caller for each of `searches`."""
        self._searches = searches
        self._queries = queries
        self._seconds = seconds
        self._took_s: list[list[float]] = [[] for _ in searches]
        self._errors: list[Exception] = []
        self._start = threading.Barrier(len(searches) + 1)

    def __call__(self) -> Load:
        """Runs all callers. Raises the first error of a search."""
        threads = [
            threading.Thread(target=self._call, args=(at,)) for at in range(len(self._searches))
        ]
        for thread in threads:
            thread.start()
        self._start.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        elapsed_s = time.perf_counter() - began
        if self._errors:
            raise self._errors[0]
        return Load([each for took in self._took_s for each in took], elapsed_s)

    def _call(self, at: int) -> None:
        search, took_s = self._searches[at], self._took_s[at]
        place = at * len(self._queries) // len(self._searches)
        self._start.wait()
        before = time.perf_counter()
        end = before + self._seconds
        try:
            while before < end:
                search(self._queries[place % len(self._queries)])
                after = time.perf_counter()
                took_s.append(after - before)
                before = after
                place += 1
        except Exception as error:  # Whatever a library raises, in its thread.
            self._errors.append(error)
