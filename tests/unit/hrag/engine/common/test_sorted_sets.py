"""Sets of integers in sorted arrays are combined like Python sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.common.sorted_sets import difference, intersection, is_in, union

# Some of the generated sets are dense enough for bitmaps.
numbers = st.sampled_from([20, 1000, (1 << 64) - 1]).flatmap(
    lambda maximum: st.lists(st.integers(0, maximum), max_size=60)
)


def ascending(values: set[int] | list[int]) -> np.ndarray:
    return np.array(sorted(set(values)), np.uint64)


def test_is_in_marks_the_values_that_are_among_others():
    others = np.array([2, 5, 9], np.uint32)
    values = np.array([9, 1, 2, 3, 10, 5], np.uint32)
    assert is_in(values, others).tolist() == [True, False, True, False, False, True]
    assert is_in(values, others[:0]).tolist() == [False] * 6
    assert is_in(values[:0], others).tolist() == []


@given(numbers, numbers)
def test_is_in_marks_values_in_any_order_with_repetitions(values, others):
    expected = [value in others for value in values]
    assert is_in(np.array(values, np.uint64), ascending(others)).tolist() == expected


@given(numbers, numbers)
def test_sets_are_combined_like_python_sets(first, second):
    pair = ascending(first), ascending(second)
    assert union(pair).tolist() == sorted({*first, *second})
    assert intersection(*pair).tolist() == sorted({*first} & {*second})
    assert difference(*pair).tolist() == sorted({*first} - {*second})


@given(st.lists(numbers, max_size=3))
def test_the_arrays_of_a_union_may_be_in_any_order(sets):
    result = union([np.array(values, np.uint64) for values in sets])
    assert result.dtype == np.uint64
    assert result.tolist() == sorted({value for values in sets for value in values})
