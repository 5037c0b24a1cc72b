"""Filter terms sort like their values, and no two values have the same term."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.common.filter_terms import field_prefix, term

PREFIX = field_prefix("metadata.n")
floats = st.floats(allow_nan=False)
zones = st.just(UTC) | st.integers(-720, 720).map(lambda m: timezone(timedelta(minutes=m)))
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)


@given(floats | st.integers(-(2**53), 2**53), floats)
def test_terms_of_numbers_sort_like_the_numbers(first, second):
    terms = term(PREFIX, first), term(PREFIX, second)
    assert (terms[0] < terms[1]) == (first < second)
    assert (terms[0] == terms[1]) == (first == second)


@given(moments, moments)
def test_terms_of_moments_sort_like_the_moments(first, second):
    terms = term(PREFIX, first), term(PREFIX, second)
    assert (terms[0] < terms[1]) == (first < second)
    assert (terms[0] == terms[1]) == (first == second)


fields = st.text(max_size=9) | st.text("ab", min_size=195, max_size=205)
values = fields | floats | st.booleans() | moments


@given(fields, values, fields, values)
def test_two_different_fields_or_values_never_have_the_same_term(
    field, value, other_field, other_value
):
    same = field == other_field and type(value) is type(other_value) and value == other_value
    terms = term(field_prefix(field), value), term(field_prefix(other_field), other_value)
    assert (terms[0] == terms[1]) == same


@given(st.text(max_size=2000), st.text(max_size=2000))
def test_a_term_fits_into_an_lmdb_key(field, value):
    # A key of LMDB has at most 511 bytes, and the store puts a prefix before the term.
    assert len(term(field_prefix(field), value)) <= 500
