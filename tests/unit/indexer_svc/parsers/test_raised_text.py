"""Superscripts and subscripts get a sign, so that their digits stay apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.raised_text import needs_space, subscript, superscript


@pytest.mark.parametrize(
    ("before", "raised", "written"),
    [
        ("a dose of 10", "6", "^6"),
        ("10", "−6", "^−6"),
        ("costs 30", "1", "^1"),
        ("5 m", "2", "^2"),
        ("8 km", "2", "^2"),
        ("two feet", "2", "^2"),
        ("sin", "2", "^2"),
        ("(a+b)", "2", "^2"),
        ("e", "-x/2", "^(-x/2)"),
        ("x", "n + 1", "^(n + 1)"),
        ("f", "(2)", "^(2)"),
        ("Ca", "2+", "^2+"),
        ("Na", "+", "+"),
        ("of ", "14", "^14"),
        ("the 1", "st", "st"),
        ("le 2", "ème", "ème"),
        ("M", "lle", "^lle"),
        ("Word", "TM", "™"),
        ("Acme", "®", "®"),
        ("Price", "*", "*"),
        ("Warranty", "2", " [2]"),
        ("Smith", "1,2", " [1,2]"),
        ("Smith", "a", " [a]"),
        ("the end.", "3", " [3]"),
        ("the end. ", "14", "^14"),
        ("保修", "2", " [2]"),
        ("", "1", "[1]"),
        ("text", "[1]", " [1]"),
        ("text", "[citation needed]", " [citation needed]"),
        ("word", "(3)", " (3)"),
        ("He said", "in small print at the end", " in small print at the end"),
        ("", "In small print", "In small print"),
        ("x", "", ""),
    ],
)
def test_a_superscript_is_an_exponent_a_note_or_text(before, raised, written):
    assert superscript(before, raised) == written


def test_a_link_to_a_note_is_a_note_after_anything():
    assert superscript("costs 30", "1", is_note=True) == " [1]"
    assert superscript("m", "2", is_note=True) == " [2]"


@pytest.mark.parametrize(
    ("before", "lowered", "written"),
    [
        ("H", "2", "2"),
        ("Fe(CN)", "6", "6"),
        ("log", "2", "2"),
        ("1010", "2", "_2"),
        ("x", "i", "_i"),
        ("V", "max", "_max"),
        ("a", "n+1", "_(n+1)"),
        ("1/", "2", "2"),
        ("", "a", "a"),
        ("see ", "a", "a"),
        ("word", "in small print below", " in small print below"),
    ],
)
def test_a_subscript_of_digits_stays_with_its_letter(before, lowered, written):
    assert subscript(before, lowered) == written


WORDS = st.text(alphabet="ab12 .()[]°é漢-", max_size=8)


@given(WORDS, WORDS, WORDS)
def test_no_letter_is_lost_and_no_number_grows(before, script, following):
    for write in (superscript, subscript):
        written = write(before, script)
        letters = [char for char in written if char.isalnum()]
        assert letters == [char for char in script if char.isalnum()]
        assert not (before[-1:].isdigit() and written[:1].isdigit())
        if written[-1:].isdigit() and following[:1].isdigit():
            assert needs_space(before, written, following) or before[-1:].isspace() or not before
