"""Sets of numbers as arrays: ascending, each number once."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ordinals: TypeAlias = NDArray[np.uint64]
"""Documents by ordinal, ascending, each once."""


def begins_run(values: NDArray[np.unsignedinteger]) -> NDArray[np.bool_]:
    """Returns which of `values` differ from the one before: `bool[n]`, True for the first."""
    different = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=different[1:])
    return different


def distinct(ascending: Ordinals) -> Ordinals:
    """Returns each value once, ascending."""
    return ascending[begins_run(ascending)]


def is_in(
    values: NDArray[np.unsignedinteger], others: NDArray[np.unsignedinteger]
) -> NDArray[np.bool_]:
    """Returns which of `values` are among `others`, which are ascending: `bool[n]`."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    positions = np.searchsorted(others, values)
    positions[positions == len(others)] = 0
    among: NDArray[np.bool_] = others[positions] == values
    return among


def union(sets: Sequence[Ordinals]) -> Ordinals:
    """Returns what is in any of the sets."""
    return distinct(np.sort(np.concatenate([np.empty(0, np.uint64), *sets])))


def intersection(some: Ordinals, others: Ordinals) -> Ordinals:
    """Returns what is in both sets."""
    fewer, more = sorted((some, others), key=len)
    return fewer[is_in(fewer, more)]


def difference(some: Ordinals, others: Ordinals) -> Ordinals:
    """Returns what is in the first set and not in the second."""
    return some[~is_in(some, others)]
