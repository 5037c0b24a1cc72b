"""Passages, citations, excerpts and durations are formatted for people."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.cli.render import (
    citation,
    cited_place,
    duration,
    emphasised,
    excerpt,
    first_words,
    highlighted,
    matched_ranges,
    merged,
    scores,
    section_citation,
)
from hrag.text.plain_text import printable
from hrag.types import ChosenSection, Chunk, MatchedChild, MatchedSentence, Passage, Span, TermSpan

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


def _span(start, end):
    return Span(start, end, start, end)


def _chunk(content="The quick brown fox.", start=100, **changes):
    values = {
        "chunk_id": "guide#2.0",
        "document_id": "guide",
        "level": 2,
        "index": 0,
        "content": content,
        "token_count": 5,
        "span": _span(start, start + len(content)),
        "section_path": (),
        "first_page": 0,
        "last_page": 0,
        "title": "Guide",
        "source": "docs/guide.md",
        "metadata": {},
    }
    return Chunk(**{**values, **changes})


def _passage(chunk, *spans):
    children = tuple(MatchedChild(f"guide#0.{i}", 0.5, _span(*s)) for i, s in enumerate(spans))
    return Passage(chunk, 0.5, children)


@given(RANGES)
def test_merged_ranges_are_disjoint_and_cover_the_same_characters(ranges):
    result = merged(ranges)
    assert {i for r in result for i in range(*r)} == {i for r in ranges for i in range(*r)}
    assert all(a[1] < b[0] for a, b in pairwise(result))


def test_overlapping_leaves_are_marked_as_one():
    passage = _passage(_chunk(), (104, 109), (107, 115))
    assert matched_ranges(passage) == [(4, 15)]
    shown = highlighted(passage.chunk.content, matched_ranges(passage), colour=False)
    assert shown.plain == "The «quick brown» fox."


def test_colour_marks_without_changing_the_text():
    shown = highlighted("The quick fox", [(4, 9)], colour=True)
    assert shown.plain == "The quick fox"
    assert [(span.start, span.end) for span in shown.spans] == [(4, 9)]


def test_marks_leave_out_spaces_at_the_ends_of_a_match():
    assert matched_ranges(_passage(_chunk(), (103, 110))) == [(4, 9)]


def test_terms_are_marked_instead_of_their_leaf():
    terms = (TermSpan(104, 109), TermSpan(116, 119))
    passage = replace(_passage(_chunk(), (100, 120)), term_spans=terms)
    shown = highlighted(passage.chunk.content, matched_ranges(passage), colour=False)
    assert shown.plain == "The «quick» brown «fox»."


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "0.500"),
        ({"dense_score": 0.5}, "0.500"),
        ({"dense_score": 0.75}, "0.500 (dense 0.750)"),
        ({"lexical_score": 0.0, "dense_score": 1.0}, "0.500 (lexical 0.000, dense 1.000)"),
        ({"dense_score": 0.5, "rerank_score": -2.0}, "0.500 (reranker -2.000)"),
    ],
)
def test_scores_of_sources_are_shown_if_they_differ_from_the_score(changes, shown):
    assert scores(replace(_passage(_chunk()), **changes)) == shown


def test_the_matched_sentence_is_cited_instead_of_its_chunk():
    chunk = _chunk(section_path=("Alpha",), first_page=3, last_page=4)
    passage = _passage(chunk)
    assert cited_place(passage) is chunk
    sentence = MatchedSentence(_span(104, 109), ("Guide", "Beta"), 4, 4)
    cited = cited_place(replace(passage, matched_sentence=sentence))
    assert citation(cited) == "Guide · Beta · p. 4 · docs/guide.md · guide#2.0"


def test_match_is_cut_at_the_ends_of_the_passage():
    assert matched_ranges(_passage(_chunk(), (50, 103), (500, 600))) == [(0, 3)]


@given(st.text(), RANGES)
def test_highlighting_keeps_every_character(text, ranges):
    inner = merged((min(a, len(text)), min(b, len(text))) for a, b in ranges)
    shown = highlighted(text, inner, colour=True)
    assert shown.plain == printable(text)


@given(st.text())
def test_printable_text_has_no_controls_and_the_same_length(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(c in "\t\n" or not (ord(c) < 32 or 0x7F <= ord(c) < 0xA0) for c in shown)


def test_a_citation_has_only_the_parts_that_the_chunk_has():
    chunk = _chunk(section_path=("Guide", "Install", "Linux"), first_page=3, last_page=4)
    assert citation(chunk) == "Guide · Install > Linux · p. 3-4 · docs/guide.md · guide#2.0"
    assert citation(_chunk(title="", source="")) == "guide#2.0"


def test_citation_cannot_move_the_cursor():
    assert "\x1b" not in citation(_chunk(title="a\x1b[2Jb"))


def test_section_is_cited_like_a_chunk():
    section = ChosenSection("d", "Guide", "", 0.5, _span(0, 9), ("Guide", "Install"), 3, 4)
    assert section_citation(section) == "Guide · Install · p. 3-4 · d"
    bare = ChosenSection("d", "", "", 0.5, _span(0, 9), (), 0, 0)
    assert section_citation(bare) == "d"
    assert "\x1b" not in section_citation(
        ChosenSection("d", "a\x1b[2J", "", 0, _span(0, 1), (), 0, 0)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It fits.", "It fits."),
        ("One line\n\tof two.", "One line of two."),
        ("First words of many more", "First words of many…"),
        ("x" * 40, "x" * 19 + "…"),
        ("一" * 40, "一" * 19 + "…"),
        ("a " + "x" * 40, "a " + "x" * 17 + "…"),
    ],
)
def test_first_words_end_at_a_word_if_possible(text, expected):
    assert first_words(text, 20) == expected


@given(st.text(), st.integers(1, 50))
def test_first_words_are_one_line_within_the_limit(text, chars):
    shown = first_words(text, chars)
    assert len(shown) <= chars
    assert not set(shown) & set("\t\n")


def test_excerpt_contains_the_words_of_the_query():
    text = "\n".join(["nothing here"] * 10 + ["set a breakpoint", "in the debugger"] + ["more"] * 9)
    assert excerpt(text, "How do I set breakpoints in the debugger?", 2, 40) == [
        "set a breakpoint",
        "in the debugger",
    ]


@given(st.text(), st.integers(1, 6), st.integers(5, 80))
def test_excerpt_stays_within_its_size(text, lines, width):
    shown = excerpt(text, "any word", lines, width)
    assert len(shown) <= lines
    assert all(len(line) <= width for line in shown)


def test_words_of_the_query_are_emphasised_in_singular_and_plural():
    shown = emphasised("a breakpoint, and breaks", "breakpoints")
    assert [(span.start, span.end) for span in shown.spans] == [(2, 12)]


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [(0, "0 µs"), (999, "999 µs"), (1500, "1.5 ms"), (2_500_000, "2.50 s")],
)
def test_durations_have_a_suitable_unit(microseconds, expected):
    assert duration(microseconds) == expected
