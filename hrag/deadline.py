"""Until when a caller waits, passed down so that no stage works for nobody."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from hrag.errors import Cancelled, DeadlineExceeded


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


NEVER = Deadline()
