"""The rounds of a search: when it stops, and when it searches again with more candidates.

Candidates are leaves, but the limit of a search counts passages, and several leaves may become one
passage. So a search that has too few passages runs another round, with FACTOR times as many
candidates. The search ends when it has enough passages, or when no further leaf can be found.

The passages of a later round come after the passages of earlier rounds, and do not change them.
Therefore a search with a smaller limit returns the first passages of the same search with a larger
limit. All engines use the code of this module for these decisions.
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
from hrag.values.search import Aggregation, Retrieval, SearchMode

# Each round requests this many times the candidates of the round before. With the factor 4, a
# search needs few rounds, and all earlier rounds together cost at most a third of the last round.
FACTOR = 4


def choose_drafts(
    request: FindRequest, drafts: Iterable[PassageDraft], matches: MatchedLeaves
) -> ChosenDrafts:
    """Chooses which drafts become passages.

    A draft is a chunk that may become a passage. A group consists of the matched leaves that one
    chunk represents; `matches` has the groups. `drafts` has one draft for each group, best first.
    Raises ReplyTooLarge as soon as the texts of the chosen drafts are larger than the reply may be.
    """
    if request.mode is SearchMode.CONTEXT:
        return fill_budget(
            drafts,
            request.token_budget,
            matches,
            limit=request.limit,
            max_per_document=request.max_per_document,
            reply=request.reply,
        )
    limits = PassageLimits(
        request.limit,
        request.token_budget,
        request.merge_adjacent,
        request.cut_last,
        request.max_per_document,
        request.keep_overlap,
    )
    return choose_drafts_within_limits(drafts, limits, matches, request.reply)


@dataclass(slots=True)
class RoundOutcome:
    """Says whether a round of a search filled the result, and whether it left out matched leaves.

    A group is a chunk with the matched leaves that it represents. `is_full` is True if the
    request's limit of passages or its token budget allows no further passage. `took_all` is True if
    no group was left out or cut. Two kinds of groups do not count as left out: groups whose
    document already has `max_per_document` passages, and groups whose text is already contained in
    better passages. `ended_early` is True if the passages were complete before the last group was
    read, so worse groups would change nothing. A full result alone does not mean this: a worse
    group may fit the rest of the token budget, or may be joined with a passage.
    """

    is_full: bool
    took_all: bool
    ended_early: bool = False

    @classmethod
    def of_groups(cls, groups: int, limit: int) -> "RoundOutcome":
        """Returns the outcome of a round in which each group becomes one passage.

        A group is a chunk with the matched leaves that it represents. `groups` is the count of
        groups in the round, and `limit` is the largest allowed count of passages.
        """
        return cls(groups >= limit, groups <= limit, groups >= limit)

    @classmethod
    def of_drafts(cls, chosen: ChosenDrafts, groups: int, request: FindRequest) -> "RoundOutcome":
        """Returns the outcome of a round, given the drafts that become passages.

        A draft is a chunk, or several joined chunks, that may become a passage. `groups` is the
        count of all groups in the round; a group is a chunk with the matched leaves that it
        represents.
        """
        tokens = sum(draft.record.token_count for draft in chosen.drafts)
        has_spent_all = 0 < request.token_budget <= tokens
        has_all_passages = len(chosen.drafts) >= request.limit
        return cls(
            chosen.left_out or has_spent_all or has_all_passages,
            chosen.considered == groups and not chosen.left_out,
            chosen.considered < groups,
        )


@dataclass(slots=True)
class Round:
    """The state of a search after one of its rounds.

    A round ranks candidate leaves and groups them by the chunk that represents them. `considered`
    is the count of candidate leaves so far. `groups` is the count of groups of all these leaves.
    `reaching` is the count of groups whose score is at least `request.min_score`. `complete` is
    True if the sources (the lexical and the vector search) have no further leaf.
    """

    request: FindRequest
    considered: int
    groups: int
    reaching: int
    complete: bool

    @property
    def has_enough_groups(self) -> bool:
        """True if this round of the search shall read the passages of its groups.

        A group is a chunk with its matched leaves. True if there are at least `request.limit`
        groups and `request.least_considered` leaves, or if no further leaf can be found. In the
        mode CONTEXT, the count of groups does not matter. If False, this round reads no passages,
        and the next round ranks more leaves.
        """
        is_context = self.request.mode is SearchMode.CONTEXT
        has_groups = is_context or self.groups >= self.request.limit
        return self.complete or (has_groups and self.considered >= self.request.least_considered)

    def is_final(self, outcome: RoundOutcome) -> bool:
        """Returns True if a further round, with more candidate leaves, would add no passage.

        `outcome` is the outcome of reading the passages of this round.
        """
        return outcome.is_full or self._is_cut_by_score or self.complete

    def is_exhausted(self, outcome: RoundOutcome) -> bool:
        """Returns True if a larger limit of passages would find no further passage in the snapshot.

        `outcome` is the outcome of reading the passages of this round.
        """
        request = self.request
        # If `is_monotonic` is True, all groups of later rounds have lower scores than the groups of
        # the rounds so far. So if the score of one group is below `min_score`, the scores of all
        # groups of later rounds are below `min_score` too.
        is_monotonic = (
            request.aggregation in (Aggregation.MAX, Aggregation.MEAN)
            and request.retrieval is not Retrieval.HYBRID
            and not request.neighbour_bonus
            and request.mode is not SearchMode.SUMMARY_FIRST
        )
        return (self.complete or (self._is_cut_by_score and is_monotonic)) and outcome.took_all

    @property
    def _is_cut_by_score(self) -> bool:
        """True if at least one group has a score below `request.min_score`.

        A group is a chunk with its matched leaves.
        """
        return self.reaching < self.groups
