"""The compiled join of candidates returns the same as its twin in Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hrag_fast
from tests import twins

ROWS = st.sets(st.one_of(st.integers(0, 12), st.integers(0, 2**32 - 1)), max_size=12)


def arrays(rows: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows and their scores."""
    scores = np.random.default_rng(seed).random(len(rows), np.float32)
    return np.array(rows, np.uint32), scores


@given(ROWS, ROWS, st.randoms())
def test_joined_candidates_equal_their_twin(by_terms, by_vector, draw):
    term_rows = sorted(by_terms)
    draw.shuffle(term_rows)
    vector_rows, lexical = arrays(sorted(by_vector), 1)
    arguments = (*arrays(term_rows, 2), *arrays(sorted(by_vector), 3), lexical)
    joined = hrag_fast.join_candidates(*arguments)
    for array, expected in zip(joined, twins.join_candidates(*arguments), strict=True):
        assert array.dtype == expected.dtype
        assert array.tolist() == expected.tolist()
    assert joined.rows[joined.unscored].tolist() == sorted(by_terms - set(vector_rows.tolist()))


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (1, np.zeros(3, np.float32), "term_scores has 3 entries; it must have 2, as its rows"),
        (3, np.zeros(3, np.float32), "vector_scores has 3 entries; it must have 2, as its rows"),
        (4, np.zeros(1, np.float32), "lexical_scores has 1 entries; it must have 2, as its rows"),
        (2, np.array([4, 4], np.uint32), r"vector_rows\[1\] is 4; it must be above"),
        (0, np.zeros(2, np.int64), "dtype mismatch"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(index, value, message):
    arguments = [*arrays([5, 1], 0), *arrays([4, 6], 0), np.zeros(2, np.float32)]
    assert hrag_fast.join_candidates(*arguments).rows.tolist() == [1, 4, 5, 6]
    arguments[index] = value
    with pytest.raises(ValueError, match=message):
        hrag_fast.join_candidates(*arguments)
