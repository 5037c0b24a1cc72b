"""Runs are divided into words by white space and by gaps, and unknown characters are left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.pdf.layout.words import (
    noise_share,
    words_of,
    words_of_values,
)
from indexer_svc.parsers.pdf.page_content import FormValue, GlyphRun
from tests.support.documents.page_contents import REGULAR, run, words


def texts(runs):
    return [word.text for word in words(runs)]


def spaced(text: str, gap: float) -> GlyphRun:
    """Returns a run with `gap` points after each character of 5 points."""
    starts = [index * (5 + gap) for index in range(len(text))]
    ends = [start + 5 for start in starts]
    return GlyphRun(text, starts, ends, 0, 10, 8, 10.0, REGULAR)


def test_white_space_divides_words():
    assert texts([run("two words", 0, 10)]) == ["two", "words"]


def test_a_gap_without_white_space_divides_words():
    pump = run("Pump", 0, 10)
    wide = pump._replace(text="Pump7", starts=[*pump.starts, 40.0], ends=[*pump.ends, 45.0])
    assert texts([wide]) == ["Pump", "7"]


def test_kerning_divides_no_words():
    assert texts([spaced("kern", 1.0)]) == ["kern"]


def test_letters_that_all_stand_apart_are_one_word():
    assert texts([spaced("SPACED", 3.0)]) == ["SPACED"]


def test_a_word_has_the_box_of_its_characters():
    word = words([run("ab cd", 100, 50)])[1]
    assert (word.left, word.right, word.baseline, word.top, word.bottom) == (115, 125, 50, 42, 52)


@pytest.mark.parametrize("noise", ["\x00", "\x03", "\ue123", "\ufffd"])
def test_characters_of_unknown_glyphs_are_left_out(noise):
    assert texts([run(f"a{noise}b {noise}", 0, 10)]) == ["ab"]
    assert noise_share([run(f"a{noise} {noise}{noise}", 0, 10)]) == 0.75


def test_letters_that_stand_for_ligatures_are_replaced():
    assert texts([run("informa\u019fon a\u01a9ach \u019f", 0, 10)]) == [
        "information",
        "attach",
        "\u019f",
    ]


def test_each_line_of_a_form_value_is_a_word():
    values = [FormValue("Ada\nSample", 10, 10, 200, 40), FormValue(" ", 0, 0, 9, 9)]
    assert [(word.text, word.left) for word in words_of_values(values, 10.0, REGULAR)] == [
        ("Ada", 10),
        ("Sample", 10),
    ]


@given(st.lists(st.text(st.characters(codec="latin-1", exclude_categories=["C"])), max_size=5))
def test_no_visible_character_is_lost_or_doubled(parts):
    runs = [run(part, 0, 20 * index) for index, part in enumerate(parts)]
    read = "".join(word.text for word in words_of(runs))
    assert read == "".join("".join(part.split()) for part in parts)
