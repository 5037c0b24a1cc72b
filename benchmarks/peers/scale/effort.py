"""How much of the graph a search looks at: the least `ef` with enough recall; pure."""

from collections.abc import Callable, Sequence

import numpy as np

ENOUGH_RECALL = 0.95


def recall_at_10(found: Sequence[Sequence[int]], exact: Sequence[Sequence[int]]) -> float:
    """Returns the mean share of each query's ten nearest leaves that were found."""
    pairs = zip(found, exact, strict=True)
    return float(np.mean([len(set(own) & set(nearest)) / 10 for own, nearest in pairs]))


def least_ef(efs: Sequence[int], recall_by: Callable[[int], float]) -> tuple[int, float]:
    """Returns the first of `efs` with ENOUGH_RECALL, else the last, with its recall."""
    for ef in efs:
        recall = recall_by(ef)
        if recall >= ENOUGH_RECALL:
            break
    return ef, recall
