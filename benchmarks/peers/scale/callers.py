"""Callers that search one query after the other, each in a separate thread."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class Load:
    """The times of all searches.

    `took_s` are the seconds of each search. `elapsed_s` are the seconds from the start of the first
    search to the end of the last one.
    """

    took_s: list[float]
    elapsed_s: float


class Callers(Generic[Q]):
    """Callers that begin at the same time, each with a different query.

    A caller stops after its first search that ends more than `seconds` after the start.
    """

    def __init__(
        self, searches: Sequence[Callable[[Q], object]], queries: Sequence[Q], seconds: float
    ) -> None:
        """Creates a caller for each of `searches`."""
        self._searches = searches
        self._queries = queries
        self._seconds = seconds
        self._took_s: list[list[float]] = [[] for _ in searches]
        self._errors: list[Exception] = []
        self._start = threading.Barrier(len(searches) + 1)

    def __call__(self) -> Load:
        """Runs all callers. Raises the first error of a search."""
        threads = [
            threading.Thread(target=self._call, args=(number,))
            for number in range(len(self._searches))
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
        return Load([took for took_s in self._took_s for took in took_s], elapsed_s)

    def _call(self, number: int) -> None:
        search, took_s = self._searches[number], self._took_s[number]
        query = number * len(self._queries) // len(self._searches)
        self._start.wait()
        before = time.perf_counter()
        end = before + self._seconds
        try:
            while before < end:
                search(self._queries[query % len(self._queries)])
                after = time.perf_counter()
                took_s.append(after - before)
                before = after
                query += 1
        except Exception as error:  # A library may raise any error in this thread.
            self._errors.append(error)
