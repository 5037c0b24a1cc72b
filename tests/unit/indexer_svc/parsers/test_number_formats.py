"""Numbers are written in the formats of office programs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.number_formats import format_number

EXAMPLES = {
    "decimal": {1: "1", 12: "12"},
    "decimalZero": {1: "01", 12: "12"},
    "lowerLetter": {1: "a", 26: "z", 27: "aa", 28: "bb", 53: "aaa", 10_000: "10000"},
    "upperLetter": {2: "B", 52: "ZZ"},
    "lowerRoman": {4: "iv", 9: "ix", 1994: "mcmxciv", 4000: "4000"},
    "upperRoman": {3: "III", 40: "XL"},
    "ordinal": {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 21: "21st", 112: "112th"},
    "cardinalText": {1: "One", 21: "Twenty-one", 342: "Three hundred forty-two", 1000: "1000"},
    "ordinalText": {1: "First", 12: "Twelfth", 20: "Twentieth", 35: "Thirty-fifth"},
    "numberInDash": {5: "- 5 -"},
    "none": {7: ""},
    "chineseCountingThousand": {
        1: "一", 10: "十", 11: "十一", 20: "二十", 101: "一百零一", 110: "一百一十",
    },
    "japaneseCounting": {12: "十二", 101: "一百一"},
    "ideographTraditional": {1: "甲", 10: "癸"},
    "decimalEnclosedCircle": {1: "①", 20: "⑳", 21: "㉑", 50: "㊿", 51: "51"},
    "decimalFullWidth": {12: "１２"},
    "chicago": {1: "*", 2: "†", 5: "**"},
    "russianLower": {1: "а", 3: "в"},
    "unknown": {3: "3"},
}  # fmt: skip


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_number_in_a_format(kind):
    numbers = EXAMPLES[kind]
    assert {number: format_number(number, kind) for number in numbers} == numbers


def test_a_pattern_says_how_many_digits_a_number_has():
    assert format_number(7, "custom", "001, 002, 003, ...") == "007"
    assert format_number(7, "custom", "x") == "7"


@given(st.integers(-10, 999_999_999), st.sampled_from(sorted(EXAMPLES)))
def test_no_number_is_an_error(number, kind):
    assert format_number(number, kind) or kind == "none"


@given(st.integers(1, 700), st.integers(1, 700), st.sampled_from(["lowerLetter", "upperRoman"]))
def test_different_numbers_are_written_differently(first, second, kind):
    assert (format_number(first, kind) == format_number(second, kind)) == (first == second)
