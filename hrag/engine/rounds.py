"""Rounds of a search: when to stop, and when to search again with more candidates.

Candidates are leaves, but a limit counts passages, and several leaves may become one
passage. Then an engine looks at FACTOR times as many leaves, until there are enough
passages or no leaf is left. All engines share these decisions.
"""

from dataclasses import dataclass

from hrag.engine.find import FindRequest
from hrag.types import Aggregation

FACTOR = 4  # Few rounds; all earlier ones together cost at most a third of the last.


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a search, and into how many groups its candidates fell.

    `reaching` is the number of groups with at least `request.min_score`. `complete` is True
    if every eligible leaf was a candidate.
    """

    request: FindRequest
    groups: int
    reaching: int
    complete: bool

    @property
    def has_enough_groups(self) -> bool:
        """True if the passages are worth reading: `limit` groups, or no leaf left."""
        return self.complete or self.groups >= self.request.limit

    def is_final(self, passages: int) -> bool:
        """Returns True if another round would add nothing to this number of `passages`.

        It would add some only where joining left fewer than `limit`.
        """
        return (
            not self.request.merge_adjacent
            or self.request.token_budget > 0
            or passages >= self.request.limit
            or self._is_cut_by_score
            or self.complete
        )

    def is_exhausted(self, passages: int) -> bool:
        """Returns True if the snapshot has no passage besides these `passages`."""
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
