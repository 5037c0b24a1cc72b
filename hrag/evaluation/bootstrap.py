"""How far chance would move a figure: bootstrap intervals over the questions.

The questions are drawn anew with replacement, many times, and the interval is that of the
middle 95 % of the means (percentile bootstrap; Efron and Tibshirani, An Introduction to the
Bootstrap, 1993). Two systems are compared question by question, so that what makes a question
hard for both does not blur their difference (paired; Sakai, SIGIR 2006). The draws depend on
the seed and the number of questions alone: every metric and system sees the same.

Of few questions the interval is too narrow: where there is no difference, it excludes zero for 10 %
of samples of ten questions and for half of those of two. So below MIN_QUESTIONS nothing counts as
beyond chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEFAULT_RESAMPLES = 2000
CONFIDENCE = 0.95
MIN_QUESTIONS = 20

_DRAWS_AT_A_TIME = 4_000_000  # 32 MB of indices.


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a figure over so many questions, with its interval."""

    mean: float
    low: float
    high: float
    questions: int

    @property
    def beyond_chance(self) -> bool:
        """True if there are MIN_QUESTIONS or more and the interval lies on one side of zero."""
        return self.questions >= MIN_QUESTIONS and (self.low > 0 or self.high < 0)


def estimates(
    values: NDArray[np.float64], seed: int, resamples: int = DEFAULT_RESAMPLES
) -> list[Estimate]:
    """Returns the mean of each row of `float64[rows, questions]` with its interval.

    All rows are resampled alike, so a row of differences has a paired interval. Without
    questions all is 0.
    """
    rows, questions = values.shape
    if questions == 0:
        return [Estimate(0.0, 0.0, 0.0, 0)] * rows
    means = np.empty((rows, resamples))
    done = 0
    for drawn in _draws(questions, resamples, seed):
        for row in range(rows):
            means[row, done : done + len(drawn)] = values[row][drawn].mean(axis=1)
        done += len(drawn)
    tail = (1 - CONFIDENCE) / 2
    lows, highs = np.quantile(means, (tail, 1 - tail), axis=1)
    whole = zip(values.mean(axis=1), lows, highs, strict=True)
    return [Estimate(float(mean), float(low), float(high), questions) for mean, low, high in whole]


def few_questions(count: int, what: str) -> str | None:
    """Returns a warning if `count` questions are too few to call a difference more than chance."""
    if count >= MIN_QUESTIONS:
        return None
    return (
        f"only {count} {what}: intervals of fewer than {MIN_QUESTIONS} are too narrow, so no "
        "difference is marked as more than chance"
    )


def _draws(questions: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of questions, `int64[some, questions]`, `resamples` rows in all."""
    random = np.random.default_rng(seed)
    at_a_time = max(1, _DRAWS_AT_A_TIME // questions)
    for start in range(0, resamples, at_a_time):
        yield random.integers(0, questions, size=(min(at_a_time, resamples - start), questions))


def sample(count: int, most: int, seed: int) -> Sequence[int]:
    """Returns at most `most` of the indices below `count`, drawn without replacement, in order."""
    if count <= most:
        return range(count)
    drawn = np.random.default_rng(seed).permutation(count)[:most]
    return sorted(map(int, drawn))
