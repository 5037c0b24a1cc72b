"""Computes bootstrap intervals, which show how much chance alone changes a figure.

From n questions, a resample draws n questions at random, with replacement, and computes the mean of
their values. The interval contains the middle 95 % of the means of many resamples (percentile
bootstrap; Efron and Tibshirani, An Introduction to the Bootstrap, 1993). Two systems are compared
question by question (paired; Sakai, SIGIR 2006). So a question that is hard for both systems does
not widen the interval of their difference. The drawn questions depend only on the seed and on n, so
the same questions are drawn for every metric and system.

With few questions the interval is too narrow. If two systems are equally good, the interval of
their difference should exclude zero for 5 % of all samples of questions. But the interval excludes
zero for 10 % of all samples of ten questions, and for half of all samples of two questions. So with
fewer than MIN_QUESTIONS questions, no difference is reported as statistically significant.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEFAULT_RESAMPLES = 2000
CONFIDENCE = 0.95
MIN_QUESTIONS = 20

# At most this many indices of drawn questions are in memory at the same time. They need 32 MB.
_DRAWS_AT_A_TIME = 4_000_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a figure, for example of recall, over `questions` questions.

    `low` and `high` are the ends of the mean's 95 % bootstrap interval.
    """

    mean: float
    low: float
    high: float
    questions: int

    @property
    def beyond_chance(self) -> bool:
        """True if the mean differs from zero by more than chance alone would explain.

        This is so if there are at least MIN_QUESTIONS questions and the interval does not contain
        zero.
        """
        return self.questions >= MIN_QUESTIONS and (self.low > 0 or self.high < 0)


def estimates(
    values: NDArray[np.float64],
    seed: int,
    resamples: int = DEFAULT_RESAMPLES,
    draws_at_a_time: int = _DRAWS_AT_A_TIME,
) -> list[Estimate]:
    """Returns the mean of each row of `values`, with its interval.

    `values` is `float64[rows, questions]`: a row contains one figure for each question. The same
    questions are drawn for all rows. So if a row contains differences of two systems, both systems
    are compared on the same drawn questions. `draws_at_a_time` limits how many indices of drawn
    questions are in memory at once; this limit does not affect the result. Without questions, all
    fields of the estimates are 0.
    """
    rows, questions = values.shape
    if questions == 0:
        return [Estimate(0.0, 0.0, 0.0, 0)] * rows
    means = np.empty((rows, resamples))
    done = 0
    for drawn in _draws(questions, resamples, seed, draws_at_a_time):
        for row in range(rows):
            means[row, done : done + len(drawn)] = values[row][drawn].mean(axis=1)
        done += len(drawn)
    tail = (1 - CONFIDENCE) / 2
    lows, highs = np.quantile(means, (tail, 1 - tail), axis=1)
    figures = zip(values.mean(axis=1), lows, highs, strict=True)
    return [
        Estimate(float(mean), float(low), float(high), questions) for mean, low, high in figures
    ]


def few_questions(count: int, noun: str) -> str | None:
    """Returns a warning if `count` questions are too few for a significant difference.

    Returns None if the questions are enough. `noun` names the questions in the warning.
    """
    if count >= MIN_QUESTIONS:
        return None
    return (
        f"only {count} {noun}: with fewer than {MIN_QUESTIONS} the intervals are too narrow, so "
        "no difference is marked as more than chance"
    )


def _draws(
    questions: int, resamples: int, seed: int, draws_at_a_time: int
) -> Iterator[NDArray[np.int64]]:
    """Yields the resamples as arrays of question indices, `int64[rows, questions]`.

    Each row is one resample: the indices of the questions that were drawn. All arrays together have
    `resamples` rows. An array has at most `draws_at_a_time` indices, but at least one row.
    """
    random = np.random.default_rng(seed)
    rows = max(1, draws_at_a_time // questions)
    for start in range(0, resamples, rows):
        yield random.integers(0, questions, size=(min(rows, resamples - start), questions))


def sample(count: int, limit: int, seed: int) -> Sequence[int]:
    """Returns at most `limit` of the indices from 0 to `count - 1`, in ascending order.

    The indices are drawn at random, without replacement. If `count` is at most `limit`, all indices
    are returned.
    """
    if count <= limit:
        return range(count)
    drawn = np.random.default_rng(seed).permutation(count)[:limit]
    return sorted(map(int, drawn))
