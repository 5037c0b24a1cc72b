"""The rounds of a search: when it stops, and when it searches again with more candidates.

Candidates are leaves, but a limit counts passages, and several leaves may become one passage. So
the engine multiplies the number of candidates by FACTOR until there are enough passages or no
further leaf. The passages of a later round come after those of earlier rounds and do not change
them. Therefore the passages for a smaller limit are the first ones of those for a larger limit. All
engines share these decisions.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hrag.engine.find import FindRequest
from hrag.passages.budget import (
    ChosenDrafts,
    PassageLimits,
    choose_drafts_within_limits,
    fill_budget,
)
from hrag.passages.drafts import MatchedLeaves, PassageDraft
from hrag.values.reply_limit import SEARCH_ADVICE
from hrag.values.search import Aggregation, Retrieval, SearchMode

# With this factor a search needs few rounds, and all earlier rounds together cost at most a third
# of the last one.
FACTOR = 4


def choose_drafts(
    request: FindRequest, drafts: Iterable[PassageDraft], matches: MatchedLeaves
) -> ChosenDrafts:
    """Returns the drafts that become passages.

    `drafts` has one draft per group, best first. Raises ReplyTooLarge if the texts of the chosen
    drafts are larger than the reply may be.
    """
    chosen = _choose_drafts(request, drafts, matches)
    request.reply.check(sum(draft.content_bytes for draft in chosen.drafts), SEARCH_ADVICE)
    return chosen


def _choose_drafts(
    request: FindRequest, drafts: Iterable[PassageDraft], matches: MatchedLeaves
) -> ChosenDrafts:
    if request.mode is SearchMode.CONTEXT:
        return fill_budget(
            drafts,
            request.token_budget,
            matches,
            limit=request.limit,
            max_per_document=request.max_per_document,
        )
    limits = PassageLimits(
        request.limit,
        request.token_budget,
        request.merge_adjacent,
        request.cut_last,
        request.max_per_document,
        request.keep_overlap,
    )
    return choose_drafts_within_limits(drafts, limits, matches)


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The result of reading the groups of a round.

    `is_full` is True if the limit or the token budget allows no further passage. `took_all` is True
    if no group was left out or cut. Groups do not count as left out if their document already has
    `max_per_document` passages, or if better passages contain their text.
    """

    is_full: bool
    took_all: bool

    @classmethod
    def of_groups(cls, groups: int, limit: int) -> "RoundOutcome":
        """Returns the result if each group becomes a passage, up to `limit` passages."""
        return cls(groups >= limit, groups <= limit)

    @classmethod
    def of_drafts(cls, chosen: ChosenDrafts, groups: int, request: FindRequest) -> "RoundOutcome":
        """Returns the result if groups became drafts. A draft may join several groups."""
        tokens = sum(draft.record.token_count for draft in chosen.drafts)
        has_spent_all = 0 < request.token_budget <= tokens
        has_all_passages = len(chosen.drafts) >= request.limit
        return cls(
            chosen.left_out or has_spent_all or has_all_passages,
            chosen.considered == groups and not chosen.left_out,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """The state of a search after one of its rounds.

    `groups` is the number of groups of all candidates so far, and `reaching` the number of those
    whose score is at least `request.min_score`. `complete` is True if the sources have no further
    leaf.
    """

    request: FindRequest
    groups: int
    reaching: int
    complete: bool

    @property
    def has_enough_groups(self) -> bool:
        """True if the passages of this round shall be read."""
        is_enough = self.complete or self.groups >= self.request.limit
        return is_enough or self.request.mode is SearchMode.CONTEXT

    def is_final(self, outcome: RoundOutcome) -> bool:
        """Returns True if another round would add no passage."""
        return outcome.is_full or self._is_cut_by_score or self.complete

    def is_exhausted(self, outcome: RoundOutcome) -> bool:
        """Returns True if the snapshot has no passage beyond those of this round."""
        request = self.request
        # Then leaves of later rounds score lower, so a group below min_score stays below it.
        is_monotonic = (
            request.aggregation in (Aggregation.MAX, Aggregation.MEAN)
            and request.retrieval is not Retrieval.HYBRID
            and not request.neighbour_bonus
        )
        return (self.complete or (self._is_cut_by_score and is_monotonic)) and outcome.took_all

    @property
    def _is_cut_by_score(self) -> bool:
        """True if a group scores below `min_score`."""
        return self.reaching < self.groups
