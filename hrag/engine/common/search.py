"""A search in rounds: rank, group, enough passages? Read them, or look at more leaves.

An engine gives the ranking and the documents; what a search does with them is the same in
every engine.
"""

import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np

from hrag.engine.common.ancestor_groups import AncestorGroups, TreeOf, deepened, grouped
from hrag.engine.common.candidates import ScoredRows
from hrag.engine.common.rounds import FACTOR, Round, Selection
from hrag.engine.find import FindRequest, Found
from hrag.observe.tracing import Stage
from hrag.values.deadline import Deadline

P = TypeVar("P")  # A passage as a value or encoded, or a sentence context.
Best: TypeAlias = Callable[[int], ScoredRows]
"""Returns the best eligible leaves: as many of each source."""
Read: TypeAlias = Callable[[AncestorGroups], tuple[tuple[P, ...], Selection]]
"""Reads the best groups, and says how they were selected."""


def search(
    request: FindRequest,
    best: Best,
    read: Read[P],
    tree_of: TreeOf,
    eligible_leaves: int,
    deadline: Deadline,
) -> Found[P]:
    """Looks at more and more leaves until enough passages come out or no leaf is left.

    Raises DeadlineExceeded or Cancelled between two rounds.
    """
    stages: list[Stage] = []
    count, groups = request.candidates, None
    while True:
        deadline.check("searching")
        began = time.perf_counter()
        found = best(count)
        searched = time.perf_counter()
        if groups is None:
            groups, considered = grouped(found, request, tree_of), found.labels
        else:
            groups = deepened(groups, considered, found, request)
            considered = np.union1d(considered, found.labels)
        reaching = groups if request.min_score is None else groups.reaching(request.min_score)
        stages += [("search", began, searched), ("climb", searched, time.perf_counter())]
        round_ = Round(request, len(groups), len(reaching), found.complete)
        if round_.has_enough_groups:
            began = time.perf_counter()
            passages, selection = read(reaching)
            stages.append(("fetch", began, time.perf_counter()))
            if round_.is_final(selection):
                return Found(
                    passages=passages,
                    considered=len(considered),
                    eligible_leaves=eligible_leaves,
                    exact=found.exact,
                    exhausted=round_.is_exhausted(selection),
                    stages=tuple(stages),
                )
        count *= FACTOR
