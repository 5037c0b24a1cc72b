"""The compiled `sentence_ends` returns the same as its twin in Python, for any text."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hrag_fast import MAX_SENTENCE_CHARS, sentence_ends
from tests import twins

PIECES = (
    *'.!?。；…｡\n\f#|-*•)]"”」([',
    *("\n\n", "\n \n", "\r\n", "\x1c", "\u3000", "\t", " ", "  ", "        "),
    *("\n- ", "\n12. ", "\n123) ", "\n1234. ", "\n٣. ", "## ", "####### ", "\n###### T\n"),
    *("Dr", "approx", "e.g", "U.S.A", "p", "vs", "Approxi", "x", "Word", "word", "É", "ß", "字"),
)


@given(st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=2)).map("".join))
@example("# A\n\n# B \n")
@example(".\n\nlower")
@example("x. \ud800")
def test_sentence_ends_equal_their_twin(text):
    assert sentence_ends(text) == twins.sentence_ends(text)


ABBREVIATIONS = (
    *("A", "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Sr", "Jr", "Mt", "No", "Nos", "Fig", "Figs"),
    *("Eq", "Sec", "Ch", "Vol", "p", "pp", "vs", "cf", "al", "ca", "approx"),
    *("e.g", "i.e", "a.m", "p.m", "U.S", "U.K", "A.B.C"),
)


@pytest.mark.parametrize("word", ABBREVIATIONS)
def test_an_abbreviation_ends_no_sentence(word):
    text = f"It says {word}. Next"
    assert sentence_ends(text) == twins.sentence_ends(text) == [len(text)]


@given(st.sampled_from(PIECES), st.integers(-3, 3), st.sampled_from(PIECES))
def test_long_sentences_are_cut_where_the_twin_cuts_them(piece, more, between):
    text = "ab " * 200 + between + (piece + "c") * (MAX_SENTENCE_CHARS + more)
    assert sentence_ends(text) == twins.sentence_ends(text)


@pytest.mark.parametrize("wrong", [None, b"a. b", 3, type("Text", (str,), {})("a. b")])
def test_an_argument_that_is_not_a_str_raises_a_type_error(wrong):
    with pytest.raises(TypeError, match="text"):
        sentence_ends(wrong)
