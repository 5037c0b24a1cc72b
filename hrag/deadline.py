"""Until when a caller waits, passed down so that no stage works for nobody."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from hrag.errors import Cancelled, DeadlineExceeded

Outcome = TypeVar("Outcome")

_POLL_S = 0.05  # How often whoever waits for another's work looks whether it still has a caller.


def _stays() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock, in seconds, infinity for none; and who waits for it.

    `waits` tells whether the caller is still there. It may be asked from any thread, often.
    """

    at_s: float = math.inf
    waits: Callable[[], bool] = _stays

    @classmethod
    def after(cls, seconds: float, waits: Callable[[], bool] = _stays) -> "Deadline":
        return cls(time.monotonic() + seconds, waits)

    @classmethod
    def of_any(cls, deadlines: "Sequence[Deadline]") -> "Deadline":
        """The last of several callers', who wait for the same: while any of them does."""

        def any_waits() -> bool:
            return any(each.remaining_s > 0 and each.waits() for each in deadlines)

        return cls(max(each.at_s for each in deadlines), any_waits)

    @property
    def remaining_s(self) -> float:
        return self.at_s - time.monotonic()

    def within(self, seconds: float) -> "Deadline":
        """The same caller's, in so many seconds at the latest."""
        return Deadline(min(self.at_s, time.monotonic() + seconds), self.waits)

    def check(self, stage: str) -> None:
        """Raises DeadlineExceeded if the moment has passed, Cancelled if the caller is gone.

        `stage` is what was being done.
        """
        if self.remaining_s <= 0:
            raise DeadlineExceeded(f"the deadline passed while {stage}")
        if not self.waits():
            raise Cancelled(f"the caller went away while {stage}")

    def result_of(self, work: Future[Outcome], stage: str) -> Outcome:
        """What another thread's work comes to, or its error, or as `check` if it is not in time.

        It goes on for others who wait for it.
        """
        while not work.done():
            self.check(stage)
            with suppress(TimeoutError):
                work.exception(min(self.remaining_s, _POLL_S))
        return work.result()


NEVER = Deadline()
