"""Sets of numbers as sorted arrays."""

import numpy as np

from hrag.engine.search.sorted_sets import is_in


def test_being_among_others():
    others = np.array([2, 5, 9], np.uint32)
    values = np.array([9, 1, 2, 3, 10, 5], np.uint32)
    assert is_in(values, others).tolist() == [True, False, True, False, False, True]
    assert is_in(values, others[:0]).tolist() == [False] * 6
    assert is_in(values[:0], others).tolist() == []
