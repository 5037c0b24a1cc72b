"""Texts are split into sentences."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.text.sentences import MAX_SENTENCE_CHARS, fitting, sentence_ends


def split(text: str) -> list[str]:
    ends = sentence_ends(text)
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["One. ", "Two! ", "Three? ", "Four"],
        ["It is 3.14 or so. ", "Version 2.0.1 is out."],
        ["Dr. Smith met J. R. Jones at 5 p.m. on p. 3, see Fig. 2. ", "Then he left."],
        ["It was approx. three, e.g. this one... ", "Really?! ", "Yes."],
        ['He said "no." ', "(She agreed.) ", "They left."],
        ["他来了。", "你好吗？", "“我很好！”", "她说。", "没有"],
        ["第一句；", "第二句…… ", "Then English. ", "再见。"],
        ["A line\nthat goes on.\n", "Another."],
        ["No end here\n\n", "Next paragraph\n \n", "and the last"],
        ["# Title\n", "Text one. ", "Text two.\n\n", "## Part\n\n", "More."],
        ["Shopping:\n", "- eggs\n", "- milk. ", "Fresh.\n", "1. first\n", "2. second"],
        ["| a | b |\n", "| 1 | 2 |"],
        ["Page one\f", "page two"],
        ["Windows ends lines\r\nso. ", "Ok."],
    ],
)
def test_sentences_are_separated(sentences):
    assert split("".join(sentences)) == sentences


def test_an_empty_text_has_no_sentence_and_a_blank_text_has_one():
    assert sentence_ends("") == []
    assert split(" \n ") == [" \n "]


def test_text_without_boundaries_is_cut_at_a_line_or_a_word():
    words = split("word " * 1000)
    assert all(MAX_SENTENCE_CHARS // 2 < len(part) <= MAX_SENTENCE_CHARS for part in words[:-1])
    assert all(part.endswith(" ") for part in words)
    lines = split("a line of a table without an end\n" * 100)
    assert all(part.endswith("\n") for part in lines)
    assert max(map(len, split("x" * 5000))) == MAX_SENTENCE_CHARS


@pytest.mark.parametrize(
    ("keep", "budget", "expected"),
    [
        (0, 0, None),
        (0, 1, range(1)),
        (0, 5, range(2)),
        (1, 3, range(2)),
        (1, 2, range(1, 2)),
        (1, 1, None),
        (3, 9, range(3, 4)),
        (3, 10, range(4)),
        (2, 99, range(4)),
    ],
)
def test_as_many_sentences_as_fit_are_chosen_with_the_required_one(keep, budget, expected):
    assert fitting([1, 2, 3, 4], keep, budget) == expected


pieces = st.sampled_from(
    [
        *("a", "B", "Dr", "e.g.", ".", "!", "。", "…", '"', "”", ")", " ", "\n", "\n\n", "\t"),
        *("# ", "- ", "1. ", "| ", "🙂", "\u0301", "\u3000", "x" * 400, "\f", "\r\n", "\0"),
    ]
)


@given(st.lists(pieces, max_size=40).map("".join) | st.text())
def test_sentences_partition_any_text(text):
    parts = split(text)
    assert "".join(parts) == text
    assert all(part.strip() for part in parts[1:])
    assert all(len(part.strip()) <= MAX_SENTENCE_CHARS for part in parts)


@pytest.mark.parametrize(
    "piece", [" ", "\n", ".", ". ", "#", "\n#", "\n# ", "\t\n", "e.g. ", "a", '"', ".)", "。", "- "]
)
def test_splitting_takes_linear_time(piece):
    began = time.process_time()
    sentence_ends(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 3
