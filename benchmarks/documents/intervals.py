"""Intervals of ratios over documents, by the bootstrap (Efron and Tibshirani, 1993).

Documents are resampled with replacement, and the ratio is that of the sums over the resample. The
words of one document are not independent of each other, so words are not resampled.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
_RESAMPLES = 2000
_SEED = 0


class Interval(NamedTuple):
    """A value, the ends of its 95 % interval, and its noise: one standard deviation."""

    value: float
    low: float
    high: float
    noise: float


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Returns the sum of the numerators divided by the sum of the denominators.

    Both have a number for each document. The ratio is 0 if the denominators are 0.
    """
    tops, bottoms = np.asarray(numerators, float), np.asarray(denominators, float)
    count = len(tops)
    drawn = np.random.default_rng(_SEED).integers(0, max(1, count), (_RESAMPLES, count))
    total = bottoms.sum()
    value = float(tops.sum() / total) if total else 0.0
    sums = bottoms[drawn].sum(axis=1)
    ratios = np.full(_RESAMPLES, value)
    np.divide(tops[drawn].sum(axis=1), sums, out=ratios, where=sums > 0)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, (tail, 1 - tail))
    return Interval(value, float(low), float(high), float(ratios.std()))


def total(values: Sequence[float]) -> Interval:
    """Returns the sum of a number for each document."""
    return Interval(*(len(values) * part for part in ratio(values, [1] * len(values))))
