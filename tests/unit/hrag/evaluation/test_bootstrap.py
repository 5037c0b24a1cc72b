"""Intervals: repeatable, paired, and as wide as theory says."""

import numpy as np
import pytest

from hrag.evaluation import bootstrap
from hrag.evaluation.bootstrap import MIN_QUESTIONS, Estimate, estimates, few_questions, sample


def test_equal_seeds_give_equal_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if fewer draws fit into memory at a time."""
    values = np.random.default_rng(1).random((2, 30))
    whole = estimates(values, seed=3)
    assert estimates(values, seed=3) == whole
    assert estimates(values[:1], seed=3) == whole[:1]
    assert estimates(values, seed=4) != whole
    monkeypatch.setattr(bootstrap, "_DRAWS_AT_A_TIME", 7 * 30)
    assert estimates(values, seed=3) == whole


def test_a_mean_has_the_interval_of_its_standard_error() -> None:
    """Of 1,000 zeros and ones, half each: 1.96 times sqrt(0.25 / 1000) to either side."""
    (found,) = estimates(np.array([[0.0, 1.0] * 500]), seed=0)
    assert found.mean == 0.5
    assert found.high - 0.5 == pytest.approx(0.031, abs=0.003)
    assert 0.5 - found.low == pytest.approx(0.031, abs=0.003)


def test_paired_differences_ignore_what_is_hard_for_both() -> None:
    hard = np.random.default_rng(1).random(200)
    better = hard + 0.01
    (apart,) = estimates(np.array([better]), seed=0)
    (paired,) = estimates(np.array([better - hard]), seed=0)
    assert apart.high - apart.low > 0.05
    assert (paired.low, paired.high) == pytest.approx((0.01, 0.01))
    assert paired.beyond_chance


@pytest.mark.parametrize(
    ("low", "high", "questions", "expected"),
    [
        (0.1, 0.2, 20, True),
        (-0.2, -0.1, 20, True),
        (-0.1, 0.1, 20, False),
        (0.1, 0.2, 19, False),
    ],
)
def test_a_difference_beyond_chance_has_an_interval_beside_zero(
    low: float, high: float, questions: int, expected: bool
) -> None:
    assert Estimate(0, low, high, questions).beyond_chance is expected


@pytest.mark.parametrize("questions", [1, 2, 3, 5, 10, 20, 50])
def test_where_no_difference_is_hardly_one_is_beyond_chance(questions: int) -> None:
    """Of 300 comparisons of noise: as many as the confidence allows, and some more."""
    noise = np.random.default_rng(1).normal(size=(300, questions))
    found = sum(each.beyond_chance for each in estimates(noise, seed=0, resamples=500))
    assert found <= 300 * 0.1


def test_few_questions_are_warned_of() -> None:
    assert few_questions(MIN_QUESTIONS, "questions") is None
    assert few_questions(19, "questions") == (
        "only 19 questions: with fewer than 20 the intervals are too narrow, so no difference is "
        "marked as more than chance"
    )


def test_without_questions_everything_is_zero() -> None:
    assert estimates(np.zeros((2, 0)), seed=0) == [Estimate(0, 0, 0, 0)] * 2


def test_samples_are_seeded_sorted_and_without_repetition() -> None:
    assert list(sample(3, 5, seed=1)) == [0, 1, 2]
    drawn = sample(1000, 10, seed=1)
    assert list(drawn) == sorted(set(drawn))
    assert (len(drawn), drawn) == (10, sample(1000, 10, seed=1))
    assert drawn != sample(1000, 10, seed=2)
