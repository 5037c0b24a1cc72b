"""Joins several `hrag.text.analysis.LeafTerms`, which contain the terms of consecutive leaves."""

from collections.abc import Sequence

import numpy as np

from hrag.text.analysis import LeafTerms

NO_LEAVES = LeafTerms(np.zeros(1, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint32))


def without_terms(leaf_count: int) -> LeafTerms:
    """Returns the LeafTerms of `leaf_count` leaves that have no terms."""
    return LeafTerms(
        np.zeros(leaf_count + 1, np.int64), np.empty(0, np.uint64), np.zeros(leaf_count, np.uint32)
    )


def joined(blocks: Sequence[LeafTerms]) -> LeafTerms:
    """Joins several LeafTerms into one.

    The leaves of `blocks[0]` come first, then the leaves of `blocks[1]`, and so on.
    """
    if len(blocks) == 1:
        return blocks[0]
    counts = [np.diff(block.starts) for block in blocks]
    ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
    entries = np.concatenate([NO_LEAVES.entries, *(block.entries for block in blocks)])
    lengths = np.concatenate([NO_LEAVES.lengths, *(block.lengths for block in blocks)])
    return LeafTerms(ends, entries, lengths)
