"""Decides which segment to build next. Pure: numbers in, a step out.

Segments stay few because each holds at least `FACTOR` times what all newer ones hold
together: a collection of n leaves has at most about log8(n / threshold) + 2. A tail that
is full goes into the newest segment where that is not much larger than the tail, else
into one of its own; either costs in proportion to the tail. Segments that break the rule
are merged, and one that has died by more than `DEAD_SHARE` is written anew. With this a
leaf is indexed once when sealed and once for each factor by which its collection grows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FACTOR = 8
DEAD_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as the decision sees it."""

    rows: int
    dead: int = 0
    damaged: bool = False

    @property
    def living(self) -> int:
        return self.rows - self.dead

    @property
    def is_spoilt(self) -> bool:
        """Whether so much of it is dead that it is better written anew."""
        return self.dead > DEAD_SHARE * self.rows


@dataclass(frozen=True, slots=True)
class Step:
    """Build one segment in place of those from `first` to before `last`, and perhaps the tail."""

    first: int
    last: int
    tail: bool


def next_step(parts: Sequence[Part]) -> Step | None:
    """What to do with the segments, oldest first, whatever the tail."""
    return _repair(parts) or _merge(parts) or _rewrite(parts)


def tail_step(parts: Sequence[Part], tail: int, threshold: int, busy: int = 0) -> Step | None:
    """Seals a full tail; the first `busy` parts are being built from and stay as they are."""
    if tail < threshold:
        return None
    end = len(parts)
    if end > busy and not parts[-1].damaged and parts[-1].living < FACTOR * tail:
        return Step(end - 1, end, tail=True)
    return Step(end, end, tail=True)


def _repair(parts: Sequence[Part]) -> Step | None:
    return _first_alone(parts, [part.damaged for part in parts])


def _merge(parts: Sequence[Part]) -> Step | None:
    newer = 0
    start = None
    for place in reversed(range(len(parts))):
        if newer and parts[place].living < FACTOR * newer:
            start = place
        newer += parts[place].living
    return None if start is None else Step(start, len(parts), tail=False)


def _rewrite(parts: Sequence[Part]) -> Step | None:
    return _first_alone(parts, [part.is_spoilt for part in parts])


def _first_alone(parts: Sequence[Part], chosen: Sequence[bool]) -> Step | None:
    for place in range(len(parts)):
        if chosen[place]:
            return Step(place, place + 1, tail=False)
    return None
