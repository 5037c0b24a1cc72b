"""Chooses `ef`, the number of nodes that a search of an HNSW graph examines."""

from collections.abc import Callable, Sequence

import numpy as np

ENOUGH_RECALL = 0.95


def recall_at_10(results: Sequence[Sequence[int]], exact: Sequence[Sequence[int]]) -> float:
    """Returns the mean recall@10: the share of each query's ten nearest leaves that were found."""
    pairs = zip(results, exact, strict=True)
    return float(np.mean([len(set(leaves) & set(nearest)) / 10 for leaves, nearest in pairs]))


def least_ef(efs: Sequence[int], recall_by: Callable[[int], float]) -> tuple[int, float]:
    """Returns the first of `efs` that reaches ENOUGH_RECALL, and its recall.

    If none reaches it, returns the last of `efs` and its recall.
    """
    for ef in efs:
        recall = recall_by(ef)
        if recall >= ENOUGH_RECALL:
            break
    return ef, recall
