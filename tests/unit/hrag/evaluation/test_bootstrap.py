"""Bootstrap intervals are repeatable, may be paired, and are as wide as theory predicts."""

import numpy as np
import pytest

from hrag.evaluation.bootstrap import MIN_QUESTIONS, Estimate, estimates, few_questions, sample


def test_equal_seeds_give_equal_intervals() -> None:
    """How many draws are in memory at once does not change the intervals."""
    values = np.random.default_rng(1).random((2, 30))
    whole = estimates(values, seed=3)
    assert estimates(values, seed=3) == whole
    assert estimates(values[:1], seed=3) == whole[:1]
    assert estimates(values, seed=4) != whole
    assert estimates(values, seed=3, draws_at_a_time=7 * 30) == whole


def test_the_interval_of_a_mean_agrees_with_its_standard_error() -> None:
    """For 500 zeros and 500 ones, the mean is 1.96 * sqrt(0.25 / 1000) from each end."""
    (estimate,) = estimates(np.array([[0.0, 1.0] * 500]), seed=0)
    assert estimate.mean == 0.5
    assert estimate.high - 0.5 == pytest.approx(0.031, abs=0.003)
    assert 0.5 - estimate.low == pytest.approx(0.031, abs=0.003)


def test_paired_differences_ignore_how_hard_a_question_is_for_both_systems() -> None:
    hard = np.random.default_rng(1).random(200)
    better = hard + 0.01
    (unpaired,) = estimates(np.array([better]), seed=0)
    (paired,) = estimates(np.array([better - hard]), seed=0)
    assert unpaired.high - unpaired.low > 0.05
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
def test_a_difference_beyond_chance_has_an_interval_without_zero(
    low: float, high: float, questions: int, expected: bool
) -> None:
    assert Estimate(0, low, high, questions).beyond_chance is expected


@pytest.mark.parametrize("questions", [1, 2, 3, 5, 10, 20, 50])
def test_noise_is_rarely_a_difference_beyond_chance(questions: int) -> None:
    """The confidence allows 5 % of the 300 comparisons of noise. The test allows 10 %."""
    noise = np.random.default_rng(1).normal(size=(300, questions))
    significant = [row.beyond_chance for row in estimates(noise, seed=0, resamples=500)]
    assert sum(significant) <= 300 * 0.1


def test_few_questions_give_a_warning() -> None:
    assert few_questions(MIN_QUESTIONS, "questions") is None
    assert few_questions(19, "questions") == (
        "only 19 questions: with fewer than 20 the intervals are too narrow, so no difference is "
        "marked as more than chance"
    )


def test_estimates_without_questions_are_zero() -> None:
    assert estimates(np.zeros((2, 0)), seed=0) == [Estimate(0, 0, 0, 0)] * 2


def test_samples_are_seeded_sorted_and_without_repetition() -> None:
    assert list(sample(3, 5, seed=1)) == [0, 1, 2]
    drawn = sample(1000, 10, seed=1)
    assert list(drawn) == sorted(set(drawn))
    assert (len(drawn), drawn) == (10, sample(1000, 10, seed=1))
    assert drawn != sample(1000, 10, seed=2)
