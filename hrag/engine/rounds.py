"""When a search has enough: candidates are leaves, but limits count passages.

Candidates may collapse into fewer passages than were asked for. Then an engine looks at
FACTOR times as many leaves, until enough passages come out or no leaf is left. The
decisions are the same for every engine.
"""

from dataclasses import dataclass

from hrag.engine.find import FindRequest
from hrag.types import Aggregation

FACTOR = 4  # Few rounds, and at most three quarters of a round's work is repeated.


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a search: how many groups of leaves it came to.

    `reaching` counts those of the `groups` that reach `request.min_score`; `complete` says
    that every eligible leaf was a candidate.
    """

    request: FindRequest
    groups: int
    reaching: int
    complete: bool

    @property
    def has_enough_groups(self) -> bool:
        """Whether passages are worth reading: there are `limit` groups, or no more leaves."""
        return self.complete or self.groups >= self.request.limit

    def is_final(self, passages: int) -> bool:
        """Returns whether a deeper round adds nothing to so many passages.

        It adds something only where joined groups made too few passages.
        """
        return (
            not self.request.merge_adjacent
            or self.request.token_budget > 0
            or passages >= self.request.limit
            or self._is_cut_by_score
            or self.complete
        )

    def is_exhausted(self, passages: int) -> bool:
        """Returns whether the snapshot has nothing to return beyond so many passages."""
        request = self.request
        # Deeper leaves score lower, so with these a group below min_score stays below.
        is_monotonic = request.aggregation in (Aggregation.MAX, Aggregation.MEAN)
        all_returned = self.reaching <= request.limit or (
            passages < request.limit and not request.token_budget
        )
        return (self.complete or (self._is_cut_by_score and is_monotonic)) and all_returned

    @property
    def _is_cut_by_score(self) -> bool:
        return self.reaching < self.groups
