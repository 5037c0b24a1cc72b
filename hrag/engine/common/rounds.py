"""Rounds of a search: when to stop, and when to search again with more candidates.

Candidates are leaves, but a limit counts passages, and several leaves may become one passage.
Then an engine looks at FACTOR times as many leaves, until there are enough passages or no leaf
is left. What a later round finds comes after what earlier rounds found, and changes nothing
of it: so the passages for a smaller limit are the first of those for a larger one. All engines
share these decisions.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hrag.engine.find import FindRequest
from hrag.passages.budget import PassageLimits, Selected, fill_budget, select_drafts
from hrag.passages.drafts import MatchedLeaves, PassageDraft
from hrag.values.reply_limit import SEARCH_ADVICE
from hrag.values.search import Aggregation, Retrieval, SearchMode

FACTOR = 4  # Few rounds; all earlier ones together cost at most a third of the last.


def select(
    request: FindRequest, drafts: Iterable[PassageDraft], matches: MatchedLeaves
) -> Selected:
    """Returns the drafts that become passages; `drafts` is one a group, best first.

    Raises ReplyTooLarge if their texts are longer than the reply may be.
    """
    selected = _selected(request, drafts, matches)
    request.reply.check(sum(draft.content_bytes for draft in selected.drafts), SEARCH_ADVICE)
    return selected


def _selected(
    request: FindRequest, drafts: Iterable[PassageDraft], matches: MatchedLeaves
) -> Selected:
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
    return select_drafts(drafts, limits, matches)


@dataclass(frozen=True, slots=True)
class Selection:
    """What was made of the groups of a round.

    `is_full`: `limit` or budget allows no more. `took_all`: no group was left out or cut, except
    of documents that have given as many passages as they may, and of text that comes earlier.
    """

    is_full: bool
    took_all: bool

    @classmethod
    def of_groups(cls, groups: int, limit: int) -> "Selection":
        """Every group becomes a passage, as far as `limit` allows."""
        return cls(groups >= limit, groups <= limit)

    @classmethod
    def of_drafts(cls, selected: Selected, groups: int, request: FindRequest) -> "Selection":
        """Groups have become drafts, each of one group or several."""
        tokens = sum(draft.record.token_count for draft in selected.drafts)
        has_spent_all = 0 < request.token_budget <= tokens
        has_all_passages = len(selected.drafts) >= request.limit
        return cls(
            selected.left_out or has_spent_all or has_all_passages,
            selected.considered == groups and not selected.left_out,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a search, and into how many groups the candidates so far fell.

    `reaching` is the number of groups with at least `request.min_score`. `complete` is True
    if the sources have no further leaf.
    """

    request: FindRequest
    groups: int
    reaching: int
    complete: bool

    @property
    def has_enough_groups(self) -> bool:
        """True if passages are worth reading."""
        enough = self.complete or self.groups >= self.request.limit
        return enough or self.request.mode is SearchMode.CONTEXT

    def is_final(self, selection: Selection) -> bool:
        """Returns True if another round would add nothing to the `selection`."""
        return selection.is_full or self._is_cut_by_score or self.complete

    def is_exhausted(self, selection: Selection) -> bool:
        """Returns True if the snapshot has no passage besides those of the `selection`."""
        request = self.request
        # Deeper leaves score lower then, so a group below min_score stays below.
        is_monotonic = (
            request.aggregation in (Aggregation.MAX, Aggregation.MEAN)
            and request.retrieval is not Retrieval.HYBRID
            and not request.neighbour_bonus
        )
        return (self.complete or (self._is_cut_by_score and is_monotonic)) and selection.took_all

    @property
    def _is_cut_by_score(self) -> bool:
        return self.reaching < self.groups
