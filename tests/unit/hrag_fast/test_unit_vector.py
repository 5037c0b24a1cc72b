"""The compiled `unit_vector` returns the same bits as its plain twin."""

import math

import numpy as np
import pytest

from hrag_fast import unit_vector
from tests import twins

EXTREMES = np.array([0.0, -0.0, 1e-45, -1e-38, 3e38, -3e38, 1.0, 0.1], np.float32)


@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1.0, 1e20, 1e38])
def test_the_bits_are_those_of_the_twin_for_every_count_of_numbers(scale):
    random = np.random.default_rng(5)
    for count in (*range(1, 300), 384, 768, 1000, 1024, 1536, 4095, 4096):
        vector = (random.standard_normal(count) * scale).clip(-3e38, 3e38).astype(np.float32)
        assert_equal(vector)
        assert_equal(random.choice(EXTREMES, count))


def assert_equal(vector):
    norm, unit = unit_vector(vector)
    expected_norm, expected = twins.unit_vector(vector)
    assert norm == expected_norm
    assert (unit is None) == (expected is None)
    if unit is not None:
        assert unit.tobytes() == expected.tobytes()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_vector_that_is_not_finite_has_no_direction(number):
    vector = np.ones(9, np.float32)
    vector[4] = number
    norm, unit = unit_vector(vector)
    assert not math.isfinite(norm)
    assert unit is None


@pytest.mark.parametrize("count", [0, 1, 384])
def test_a_vector_of_zeros_has_no_direction(count):
    assert unit_vector(np.zeros(count, np.float32)) == (0.0, None)


@pytest.mark.parametrize("vector", [np.ones(3), np.ones((2, 2), np.float32)])
def test_another_dtype_or_shape_is_refused(vector):
    with pytest.raises(ValueError, match="Buffer"):
        unit_vector(vector)
