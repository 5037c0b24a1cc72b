"""Tiny sections are joined with their neighbours, and cuts at headings have special ranks."""

from itertools import accumulate

import numpy as np
import pytest

import hrag_fast
from hrag.text import tokens
from hrag.types import MARKDOWN, Document
from hrag.values.read_report import PageUnit
from hrag.values.tree import PageSpan, ParsedText, Section
from indexer_svc.boundaries import CUT_SECTION, Boundaries, boundaries_of
from indexer_svc.extract import extract
from indexer_svc.parsers.parser_functions import parse

LEAF = 256  # With leaves of 256 tokens, sections of less than 32 tokens are tiny.


def boundaries(parsed: ParsedText) -> Boundaries:
    ends = tokens.byte_ends(tokens.encode(parsed.text))
    offsets = np.concatenate(([0], ends)).astype(np.uint32)
    return boundaries_of(parsed, parsed.text.encode(), offsets, LEAF)


def blocks(*sections: tuple[int, int]) -> list[list[int]]:
    """Returns the indices of the sections in each block.

    A section is given by its depth and its count of tokens. A section of depth 0 is the text before
    the first heading.
    """
    starts = [0, *accumulate(size for _, size in sections)]
    parsed = ParsedText(
        " word" * starts[-1],
        tuple(
            Section("A heading", depth, start * len(" word"))
            for (depth, _), start in zip(sections, starts, strict=False)
            if depth
        ),
    )
    ends = boundaries(parsed).block_ends
    return [
        [index for index, start in enumerate(starts[:-1]) if low <= start < high]
        for low, high in zip([0, *ends], ends, strict=False)
    ]


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ([(0, 300)], [[0]]),
        ([(1, 100), (1, 32), (2, 32)], [[0], [1], [2]]),
        ([(0, 100), (1, 100)], [[0], [1]]),
        ([(0, 31), (1, 100)], [[0, 1]]),
        ([(1, 100), (1, 31), (1, 100)], [[0, 1], [2]]),
        ([(1, 31), (1, 100), (1, 100)], [[0, 1], [2]]),
        ([(1, 100), (1, 31)], [[0, 1]]),
        ([(1, 10), (2, 10), (3, 100), (3, 100)], [[0, 1, 2], [3]]),
        ([(1, 100), (1, 31), (2, 100)], [[0], [1, 2]]),
        ([(1, 100), (2, 20), (2, 20), (2, 20), (1, 100)], [[0], [1, 2, 3], [4]]),
        ([(1, 100), (2, 15), (2, 15), (1, 100)], [[0, 1, 2], [3]]),
        ([(1, 100), (2, 20), (2, 20), (3, 100)], [[0, 1], [2, 3]]),
        ([(1, 5), (1, 5)], [[0, 1]]),
    ],
)
def test_tiny_sections_join_the_next_section_or_each_other_or_the_block_before_them(
    sections, expected
):
    assert blocks(*sections) == expected


def ranks_after(text: str, *pieces: str) -> list[int]:
    """Returns the rank of the boundary at the end of each piece. A piece occurs once in `text`."""
    parsed = extract(Document(text, mime_type=MARKDOWN), len(text), parse).parsed
    ends = tokens.byte_ends(tokens.encode(text)).tolist()
    result = boundaries(parsed)
    return [result.ranks[ends.index(text.index(piece) + len(piece)) + 1] for piece in pieces]


@pytest.mark.parametrize(
    "heading", ["# A title\n\n", "## A title ##\n", "A title\n=======\n\n", "A title\n---\n"]
)
def test_a_cut_between_a_heading_and_its_text_is_worse_than_a_cut_after_a_word(heading):
    before = "A sentence. " * 20 + "The last one.\n\n"
    text = before + heading + "First one. Second one. " + "More. " * 40
    ranks = ranks_after(text, "The last one.\n\n", heading, "First one.")
    assert ranks == [CUT_SECTION, hrag_fast.CUT_CODE_POINT, hrag_fast.CUT_SENTENCE]


def test_a_cut_before_a_heading_after_a_tiny_section_is_not_preferred():
    text = "# Part\n\n## With text\n\nA word.\n\n### Deep\n\n" + "More. " * 40
    assert ranks_after(text, "# Part\n\n") == [hrag_fast.CUT_CODE_POINT]
    assert ranks_after(text, "A word.\n\n") == [hrag_fast.CUT_PARAGRAPH]


def test_the_start_of_a_page_ranks_like_a_paragraph():
    text = "word " * 10
    parsed = ParsedText(text, (), (PageSpan(1, 0, 24), PageSpan(2, 24, len(text))))
    assert boundaries(parsed).ranks[5] == hrag_fast.CUT_PARAGRAPH


@pytest.mark.parametrize(
    ("unit", "rank"),
    [(PageUnit.ROW, hrag_fast.CUT_SENTENCE), (PageUnit.SECOND, hrag_fast.CUT_WORD)],
)
def test_the_start_of_a_row_ranks_like_a_sentence_and_a_time_changes_no_rank(unit, rank):
    text = "word " * 10 + "\n\n" + "word " * 10
    spans = (PageSpan(1, 0, 24), PageSpan(2, 24, 52), PageSpan(3, 52, len(text)))
    found = boundaries(ParsedText(text, (), spans, unit)).ranks
    without = boundaries(ParsedText(text)).ranks
    assert found[5] == rank
    # A row that begins a paragraph keeps the rank of the paragraph.
    assert [found[i] for i in range(len(found)) if i != 5] == [
        without[i] for i in range(len(without)) if i != 5
    ]


def test_a_section_that_begins_inside_a_token_belongs_to_the_block_before_it():
    parsed = ParsedText(" word" * 100, (Section("A heading", 1, 251),))
    assert boundaries(parsed).block_ends == [100]
