"""A search in rounds, which is the same for all engines.

Each round ranks leaves, adds the bonus for neighbouring leaves to the scores, and groups the
leaves. If there are enough groups, the round reads their passages. Otherwise the next round ranks
more leaves. An engine provides the ranking of leaves and reads the documents.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from hrag.engine.common.ancestor_groups import AncestorGroups, TreeOf, deepened, grouped
from hrag.engine.common.candidates import ScoredRows
from hrag.engine.common.fusion import with_neighbour_bonus
from hrag.engine.common.labels import Labels
from hrag.engine.common.rounds import FACTOR, Round, RoundOutcome
from hrag.engine.find import FindRequest, FindResult, P
from hrag.observe.tracing import Stage
from hrag.values.deadline import Deadline
from hrag.values.search import ChosenSection

Best: TypeAlias = Callable[[int], ScoredRows]
"""Returns the best leaves that pass the filter, with scores, without the bonus for neighbours.

The argument is how many leaves each source (lexical, vector) shall return.
"""
Read: TypeAlias = Callable[[AncestorGroups], tuple[tuple[P, ...], RoundOutcome]]
"""Reads and returns the passages of the best groups, and whether groups were left out.

A group is a chunk with the matched leaves that it represents.
"""


def search(
    request: FindRequest,
    best_leaves: Best,
    read: Read[P],
    tree_of: TreeOf,
    eligible_leaves: int,
    deadline: Deadline,
    *,
    stages: Sequence[Stage] = (),
    sections: tuple[ChosenSection, ...] = (),
) -> FindResult[P]:
    """Searches in rounds, until it has enough passages or until no further leaf can be found.

    Each round ranks more leaves than the round before. `eligible_leaves` is the count of leaves
    that the search may return. `stages` are the stages of the call that ended before the first
    round, with their times. `sections` are the sections that two-stage routing has chosen. The
    result contains `stages`, `eligible_leaves` and `sections`.
    Before each round, checks whether the call has passed its deadline or was cancelled. If so,
    raises DeadlineExceeded or Cancelled.
    """
    stages = [*stages]
    count, groups = request.candidates, None
    # The labels of the leaves that earlier rounds have ranked.
    considered: Labels = np.empty(0, np.uint64)
    while True:
        deadline.check("searching")
        start_s = time.perf_counter()
        scored = with_neighbour_bonus(best_leaves(count), request.neighbour_bonus)
        searched_s = time.perf_counter()
        if groups is None:
            groups, total = grouped(scored, request, tree_of), len(scored)
        else:
            groups = deepened(groups, considered, scored, request)
            total = len(np.union1d(considered, scored.labels))
        reaching = groups if request.min_score is None else groups.reaching(request.min_score)
        stages += [("search", start_s, searched_s), ("climb", searched_s, time.perf_counter())]
        round_ = Round(request, total, len(groups), len(reaching), scored.complete)
        if round_.has_enough_groups:
            start_s = time.perf_counter()
            passages, outcome = read(reaching.reranked(request.rerank_scores))
            stages.append(("fetch", start_s, time.perf_counter()))
            if round_.is_final(outcome):
                # Keywords would take twice as long.
                return FindResult(
                    passages,
                    total,
                    eligible_leaves,
                    scored.exact,
                    round_.is_exhausted(outcome),
                    tuple(stages),
                    sections,
                )
        considered = np.union1d(considered, scored.labels)
        count *= FACTOR
