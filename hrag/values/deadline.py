"""Deadlines of callers, passed down so that no stage works for a caller that has left."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from hrag.values.errors import Cancelled, DeadlineExceeded

Outcome = TypeVar("Outcome")

_POLL_S = 0.05  # How often a wait for another thread checks whether the caller has left.


def _always() -> bool:
    return True


def _at_once() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a caller stops waiting, and whether it still waits. Thread-safe.

    `at_s` is in seconds of `time.monotonic`; infinity means no deadline. `is_waiting` is false
    once the caller has left; it is called often and from any thread. `yield_to_others` is
    called at each check and may sleep, so that other callers' work goes first.
    """

    at_s: float = math.inf
    is_waiting: Callable[[], bool] = _always
    yield_to_others: Callable[[], None] = _at_once

    @classmethod
    def after(
        cls,
        seconds: float,
        is_waiting: Callable[[], bool] = _always,
        yield_to_others: Callable[[], None] = _at_once,
    ) -> "Deadline":
        """Returns the deadline `seconds` from now; infinity for none."""
        return cls(time.monotonic() + seconds, is_waiting, yield_to_others)

    @classmethod
    def of_any(cls, deadlines: "Sequence[Deadline]") -> "Deadline":
        """Returns the deadline of work that several callers share: until the last one leaves."""

        def any_is_waiting() -> bool:
            return any(each.remaining_s > 0 and each.is_waiting() for each in deadlines)

        return cls(max(each.at_s for each in deadlines), any_is_waiting)

    @property
    def remaining_s(self) -> float:
        """Seconds left; negative once the deadline has passed, infinity for none."""
        return self.at_s - time.monotonic()

    def within(self, seconds: float) -> "Deadline":
        """Returns a deadline of the same caller, at most `seconds` from now."""
        at_s = min(self.at_s, time.monotonic() + seconds)
        return Deadline(at_s, self.is_waiting, self.yield_to_others)

    def check(self, stage: str) -> None:
        """Raises DeadlineExceeded if the deadline has passed, Cancelled if the caller has left.

        `stage` is the current activity, for the message, such as `embedding`.
        """
        if time.monotonic() >= self.at_s:
            raise DeadlineExceeded(f"the deadline passed while {stage}")
        if not self.is_waiting():
            raise Cancelled(f"the call was cancelled while {stage}")
        self.yield_to_others()

    def result_of(self, work: Future[Outcome], stage: str) -> Outcome:
        """Waits for the work of another thread and returns its result.

        Raises the error of the work, and what `check` raises; the work continues then, because
        others may wait for it.
        """
        while not work.done():
            self.check(stage)
            with suppress(TimeoutError):
                work.exception(min(self.remaining_s, _POLL_S))
        return work.result()


NEVER = Deadline()

OF_CALL: ContextVar[Deadline] = ContextVar("deadline", default=NEVER)
"""The deadline of the call that this thread works for. Each call sets it when it begins."""
