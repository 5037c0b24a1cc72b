"""Decides which segments to merge next. Pure: numbers in, a plan out.

A tiered log-structured merge: segments stay few because each holds at least `FACTOR` times
what all newer ones hold together, so a collection of n leaves has at most about
log8(n / threshold) + 2 of them. A full tail is merged into the newest segment if that is
less than `FACTOR` times as large, else it becomes a segment of its own; either costs in
proportion to the tail. Segments that break the rule are merged, and one with more than
`MAX_DELETED_SHARE` deleted leaves is rewritten. So a leaf is indexed once when sealed, and
once for each factor by which its collection grows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FACTOR = 8
MAX_DELETED_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """What the policy knows of a segment: its leaves, and how many of them are deleted."""

    rows: int
    deleted: int = 0
    damaged: bool = False

    @property
    def living(self) -> int:
        """Leaves that are not deleted."""
        return self.rows - self.deleted

    @property
    def needs_rewrite(self) -> bool:
        """True if enough leaves are deleted that a rewrite is worth its cost."""
        return self.deleted > MAX_DELETED_SHARE * self.rows


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Build one segment in place of segments[first:last] and, with `tail`, of the tail."""

    first: int
    last: int
    tail: bool


def plan_merge(segments: Sequence[SegmentStats]) -> MergePlan | None:
    """Returns the next merge or rewrite of the segments, oldest first; None if none is due."""
    return _repair(segments) or _merge(segments) or _rewrite(segments)


def plan_seal(
    segments: Sequence[SegmentStats], tail: int, threshold: int, busy: int = 0
) -> MergePlan | None:
    """Returns how to seal the tail once it has `threshold` leaves, or None.

    The first `busy` segments are in use by another build and stay as they are.
    """
    if tail < threshold:
        return None
    end = len(segments)
    if end > busy and not segments[-1].damaged and segments[-1].living < FACTOR * tail:
        return MergePlan(end - 1, end, tail=True)
    return MergePlan(end, end, tail=True)


def _repair(segments: Sequence[SegmentStats]) -> MergePlan | None:
    return _first_alone([segment.damaged for segment in segments])


def _merge(segments: Sequence[SegmentStats]) -> MergePlan | None:
    newer = 0
    start = None
    for index in reversed(range(len(segments))):
        if newer and segments[index].living < FACTOR * newer:
            start = index
        newer += segments[index].living
    return None if start is None else MergePlan(start, len(segments), tail=False)


def _rewrite(segments: Sequence[SegmentStats]) -> MergePlan | None:
    return _first_alone([segment.needs_rewrite for segment in segments])


def _first_alone(chosen: Sequence[bool]) -> MergePlan | None:
    """Rebuilds the first chosen segment by itself."""
    index = next((index for index, is_chosen in enumerate(chosen) if is_chosen), None)
    return None if index is None else MergePlan(index, index + 1, tail=False)
