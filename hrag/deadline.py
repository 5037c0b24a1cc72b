"""When a caller stops waiting, passed down so that no stage works for nobody."""

import math
import time
from dataclasses import dataclass

from hrag.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock, in seconds; infinity for none."""

    at_s: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        return cls(time.monotonic() + seconds)

    @property
    def remaining_s(self) -> float:
        return self.at_s - time.monotonic()

    def check(self, stage: str) -> None:
        """Raises DeadlineExceeded if the moment has passed; `stage` is what was being done."""
        if self.remaining_s <= 0:
            raise DeadlineExceeded(f"the deadline passed while {stage}")


NEVER = Deadline()
