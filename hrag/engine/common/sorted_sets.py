"""Sets of numbers as arrays: ascending, each number once.

Documents and rows are numbered without large gaps. So where a set has a good part of the numbers
between its first and its last, a byte for each of these (a bitmap) answers in linear time what
sorting or bisection answers in five to ten times as long.
"""

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Ordinals: TypeAlias = NDArray[np.uint64]
"""Documents by ordinal, ascending, each once."""
Number = TypeVar("Number", bound=np.unsignedinteger)
_BYTES_PER_NUMBER = 16  # Of a bitmap, for each number that it spares sorting or bisection.


def begins_run(values: NDArray[np.unsignedinteger]) -> NDArray[np.bool_]:
    """Returns which of `values` differ from the one before: `bool[n]`, True for the first."""
    different = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=different[1:])
    return different


def distinct(ascending: NDArray[Number]) -> NDArray[Number]:
    """Returns each value once, ascending."""
    return ascending[begins_run(ascending)]


def is_in(
    values: NDArray[np.unsignedinteger], others: NDArray[np.unsignedinteger]
) -> NDArray[np.bool_]:
    """Returns which of `values` are among `others`, which are ascending: `bool[n]`."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    low, size = others[0], int(others[-1] - others[0]) + 1
    if size + len(others) <= _BYTES_PER_NUMBER * len(values):
        bitmap = _bitmap(others, low, size)
        places = values - low  # Of what is smaller than `low`, wrapped around, more than `size`.
        return bitmap.take(_signed(np.minimum(places, size, out=places)))
    positions = np.searchsorted(others, values)
    positions[positions == len(others)] = 0
    among: NDArray[np.bool_] = others[positions] == values
    return among


def _bitmap(
    values: NDArray[np.unsignedinteger], low: np.unsignedinteger, size: int
) -> NDArray[np.bool_]:
    """Which of `size` numbers from `low` on are among `values`, and False behind them."""
    bitmap = np.zeros(size + 1, np.bool_)
    bitmap[_signed(values - low)] = True
    return bitmap


def _signed(places: NDArray[np.unsignedinteger]) -> NDArray[np.signedinteger]:
    """The same numbers by which numpy indexes twice as fast; below half of what the type holds."""
    return places.view(f"i{places.itemsize}")


def union(sets: Sequence[Ordinals]) -> Ordinals:
    """Returns what is in any of the sets, which may be in any order."""
    filled = [each for each in sets if len(each)] or [np.empty(0, np.uint64)]
    every = filled[0] if len(filled) == 1 else np.concatenate(filled)
    if (every[1:] > every[:-1]).all():
        return every
    low, size = every.min(), int(every.max() - every.min()) + 1
    if size <= _BYTES_PER_NUMBER * len(every):
        found: Ordinals = np.flatnonzero(_bitmap(every, low, size)).astype(np.uint64) + low
        return found
    return distinct(np.sort(every))


def intersection(some: Ordinals, others: Ordinals) -> Ordinals:
    """Returns what is in both sets."""
    fewer, more = sorted((some, others), key=len)
    return fewer[is_in(fewer, more)]


def difference(some: Ordinals, others: Ordinals) -> Ordinals:
    """Returns what is in the first set and not in the second."""
    return some[~is_in(some, others)]
