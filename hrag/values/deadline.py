"""Deadlines of callers.

The deadline of a call is passed to each stage of the call. So no stage works for a caller that has
disconnected or whose deadline has passed.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from hrag.values.errors import Cancelled, DeadlineExceeded

Outcome = TypeVar("Outcome")

# A thread that waits for another thread checks at this interval whether the caller is still
# connected.
_POLL_S = 0.05


def _always() -> bool:
    return True


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time until which a caller waits, and whether the caller is still connected. Thread-safe.

    `at_s` is in seconds of `time.monotonic`; infinity means no deadline. `is_waiting` returns False
    once the caller has disconnected; this function is called often and from any thread. The method
    `check` calls `yield_to_others`, which may sleep so that the work of other callers runs first.
    """

    at_s: float = math.inf
    is_waiting: Callable[[], bool] = _always
    yield_to_others: Callable[[], None] = _do_nothing

    @classmethod
    def after(
        cls,
        seconds: float,
        is_waiting: Callable[[], bool] = _always,
        yield_to_others: Callable[[], None] = _do_nothing,
    ) -> "Deadline":
        """Returns a deadline that is `seconds` from now. Infinity means no deadline."""
        return cls(time.monotonic() + seconds, is_waiting, yield_to_others)

    @classmethod
    def of_any(cls, deadlines: "Sequence[Deadline]") -> "Deadline":
        """Returns the deadline of work that several callers share.

        The work may continue while at least one of the callers is connected and has a deadline that
        has not passed.
        """

        def any_is_waiting() -> bool:
            return any(deadline.remaining_s > 0 and deadline.is_waiting() for deadline in deadlines)

        return cls(max(deadline.at_s for deadline in deadlines), any_is_waiting)

    @property
    def remaining_s(self) -> float:
        """The seconds until the deadline: negative after it, infinity if there is no deadline."""
        return self.at_s - time.monotonic()

    def within(self, seconds: float) -> "Deadline":
        """Returns a deadline for the same caller that is at most `seconds` from now.

        If this deadline is already earlier, the returned deadline has the time of this deadline.
        """
        at_s = min(self.at_s, time.monotonic() + seconds)
        return Deadline(at_s, self.is_waiting, self.yield_to_others)

    def check(self, stage: str) -> None:
        """Raises DeadlineExceeded after the deadline, or Cancelled if the caller has disconnected.

        `stage` names the current activity in the message, for example `embedding`.
        """
        if time.monotonic() >= self.at_s:
            raise DeadlineExceeded(f"the deadline passed while {stage}")
        if not self.is_waiting():
            raise Cancelled(f"the call was cancelled while {stage}")
        self.yield_to_others()

    def result_of(self, work: Future[Outcome], stage: str) -> Outcome:
        """Waits for the work of another thread and returns the result of the work.

        Raises the error that the work raised, or an error of `check`. If `check` raises an error,
        the work continues, because other callers may wait for its result.
        """
        while not work.done():
            self.check(stage)
            with suppress(TimeoutError):
                work.exception(min(self.remaining_s, _POLL_S))
        return work.result()


NEVER = Deadline()
