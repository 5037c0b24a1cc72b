"""The merge policy: decides which segments to merge next.

The policy reads no files and no database. It gets the leaf counts of the segments and of the tail
(the leaves that are in no segment yet), and returns a plan.

The policy is a tiered log-structured merge. Its rule: each segment has at least `FACTOR` (8) times
as many leaves as all newer segments together. The policy makes these plans:

* Seal: a tail is sealed when it has at least `threshold` leaves. It is merged into the newest
  segment if this segment has less than `FACTOR` times as many leaves as the tail. Otherwise the
  tail becomes a new segment. In both cases, sealing takes time proportional to the size of the
  tail.
* Merge: if a segment does not obey the rule, it is merged with all newer segments.
* Rewrite: if more than `MAX_DELETED_SHARE` of a segment's leaves are deleted, the segment is built
  again without them.
* Repair: if the files of a segment cannot be read, the segment is built again.

With this policy, a collection of n leaves has at most about log8(n / threshold) + 2 segments. A
leaf is indexed once when it is sealed, and once more each time its collection has become `FACTOR`
times as large.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FACTOR = 8
MAX_DELETED_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """The facts about a segment that the merge policy needs.

    `rows` is the count of all leaves of the segment, including deleted leaves. `deleted` is the
    count of its deleted leaves. `damaged` is True if the segment's files cannot be read.
    """

    rows: int
    deleted: int = 0
    damaged: bool = False

    @property
    def living(self) -> int:
        """The count of the segment's leaves that are not deleted."""
        return self.rows - self.deleted

    @property
    def needs_rewrite(self) -> bool:
        """True if so many of the segment's leaves are deleted that it should be rewritten.

        A rewrite builds the segment again without its deleted leaves.
        """
        return self.deleted > MAX_DELETED_SHARE * self.rows


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A decision to build one new segment.

    The segments of a collection are counted from 0, oldest first. The new segment replaces the
    segments from `first` up to, but not including, `last`. If `tail` is True, the new segment also
    contains the leaves of the tail.
    """

    first: int
    last: int
    tail: bool


def plan_merge(segments: Sequence[SegmentStats]) -> MergePlan | None:
    """Returns the next repair, merge or rewrite of segments, or None if nothing is due.

    A repair builds a damaged segment again. A rewrite builds a segment again without its deleted
    leaves. `segments` are all segments of a collection, oldest first.
    """
    return _repair(segments) or _merge(segments) or _rewrite(segments)


def plan_seal(
    segments: Sequence[SegmentStats], tail: int, threshold: int, busy: int = 0
) -> MergePlan | None:
    """Returns how to seal the tail, or None if it has fewer than `threshold` leaves.

    `segments` are all segments of the collection, oldest first. `tail` is the count of leaves in
    the tail. Another build may be replacing some of the first `busy` segments, so the tail is not
    merged into one of them.
    """
    if tail < threshold:
        return None
    end = len(segments)
    if end > busy and not segments[-1].damaged and segments[-1].living < FACTOR * tail:
        return MergePlan(end - 1, end, tail=True)
    return MergePlan(end, end, tail=True)


def _repair(segments: Sequence[SegmentStats]) -> MergePlan | None:
    return _rebuild_first([segment.damaged for segment in segments])


def _merge(segments: Sequence[SegmentStats]) -> MergePlan | None:
    newer = 0
    start = None
    for index in reversed(range(len(segments))):
        if newer and segments[index].living < FACTOR * newer:
            start = index
        newer += segments[index].living
    return None if start is None else MergePlan(start, len(segments), tail=False)


def _rewrite(segments: Sequence[SegmentStats]) -> MergePlan | None:
    return _rebuild_first([segment.needs_rewrite for segment in segments])


def _rebuild_first(is_due: Sequence[bool]) -> MergePlan | None:
    """Returns a plan that rebuilds only the first segment that is due; None if no segment is due.

    `is_due` says for each segment, oldest first, whether it must be rebuilt.
    """
    index = next((index for index, due in enumerate(is_due) if due), None)
    return None if index is None else MergePlan(index, index + 1, tail=False)
