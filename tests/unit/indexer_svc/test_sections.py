"""A document is divided into sections by chunk, page or heading; each is a range of leaves."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.types import SummaryUnit, TreeSettings
from hrag.values.read_report import PageUnit
from hrag.values.tree import NONE, PageSpan, ParsedText, Section, Tree, section_parents
from indexer_svc.chunker import build_tree
from indexer_svc.sections import heading, sections
from tests.support.documents.fakes import sentences

TREE = TreeSettings((32, 64, 128), 0.0)


def parts(parsed: ParsedText, unit: SummaryUnit, settings: TreeSettings = TREE) -> list[str]:
    """Divides a text into sections by chunk, page or heading, and returns their texts."""
    tree = build_tree(parsed, settings)
    level = settings.embedding_level
    leaves = tree.level(level)
    return [
        parsed.text[leaves[section[0]]["char_start"] : leaves[section[-1]]["char_end"]]
        for section in sections(parsed, tree, level, unit)
    ]


def paged(*pages: str) -> ParsedText:
    """Returns a text with these pages."""
    spans, start = [], 0
    for number, page in enumerate(pages, 1):
        spans.append(PageSpan(number, start, start + len(page)))
        start += len(page)
    return ParsedText("".join(pages), pages=tuple(spans))


@pytest.mark.parametrize("unit", [PageUnit.ROW, PageUnit.SECOND])
def test_rows_and_times_are_not_summarised_one_by_one(unit):
    pages = replace(paged(*(sentences(8, n) + " " for n in range(8))), page_unit=unit)
    assert parts(pages, SummaryUnit.PAGE) == parts(pages, SummaryUnit.CHUNK)


def outlined(*pieces: tuple[str, int, str]) -> ParsedText:
    """Returns a text with sections. Each piece has a title, a depth and a text.

    The depth is 0 for a text without a heading.
    """
    outline, text = [], ""
    for title, depth, content in pieces:
        if depth:
            outline.append(Section(title, depth, len(text)))
            text += f"{title}\n\n"
        text += content
    return ParsedText(text, tuple(outline))


# The following tests cover sections by chunk.


def test_sections_by_chunk_are_the_chunks_of_the_top_level():
    parsed = ParsedText(sentences(60))
    top = build_tree(parsed, TREE).level(TREE.top_level)
    texts = parts(parsed, SummaryUnit.CHUNK)
    assert texts == [parsed.text[chunk["char_start"] : chunk["char_end"]] for chunk in top]
    assert len(texts) > 3


def test_a_short_document_is_one_section():
    for unit in (SummaryUnit.CHUNK, SummaryUnit.PAGE, SummaryUnit.SECTION):
        assert parts(ParsedText("Short."), unit) == ["Short."]


def test_in_a_tree_of_one_level_every_leaf_is_a_section():
    parsed, flat = ParsedText(sentences(20)), TreeSettings((32,), 0.0)
    assert len(parts(parsed, SummaryUnit.CHUNK, flat)) == build_tree(parsed, flat).counts[0]


def test_ranges_contain_indices_of_leaves():
    parsed, settings = ParsedText(sentences(60)), TreeSettings((32, 64, 128), 0.0, 1)
    tree = build_tree(parsed, settings)
    ranges = sections(parsed, tree, 1, SummaryUnit.CHUNK)
    assert ranges[-1].stop == tree.counts[1] < tree.counts[0]


# The following tests cover sections by page.


def test_each_page_is_a_section():
    texts = parts(paged(*(sentences(20, seed) for seed in range(3))), SummaryUnit.PAGE)
    assert len(texts) == 3
    for number, text in enumerate(texts):
        assert text.count(f"Sentence {number} ") >= 18
        assert text.count("Sentence ") <= 22


def test_a_leaf_on_two_pages_belongs_to_the_page_of_its_middle():
    first, second = "one " * 40, "two " * 160
    texts = parts(paged(first, second), SummaryUnit.PAGE, TreeSettings((64, 128), 0.0))
    assert len(texts) == 2
    assert texts[0].count("one") > texts[0].count("two")


def test_a_page_too_short_for_a_leaf_is_part_of_its_neighbour():
    first, last = sentences(20, 0), sentences(20, 2)
    texts = parts(paged(first, "x. ", last), SummaryUnit.PAGE)
    assert len(texts) == 2
    assert "".join(texts) == first + "x. " + last


def test_blank_pages_are_not_sections():
    first, last = sentences(20, 0), sentences(20, 2)
    assert len(parts(paged("", first, "", "", last, ""), SummaryUnit.PAGE)) == 2


def test_text_without_pages_is_divided_by_chunks():
    parsed = outlined(("A", 1, sentences(30)), ("B", 1, sentences(30, 1)))
    assert parts(parsed, SummaryUnit.PAGE) == parts(parsed, SummaryUnit.CHUNK)


# The following tests cover sections by heading.


def test_a_heading_of_any_depth_begins_a_section():
    pieces = [("A", 1, sentences(20, 0)), ("B", 2, sentences(20, 1)), ("C", 1, sentences(20, 2))]
    texts = parts(outlined(*pieces), SummaryUnit.SECTION)
    assert len(texts) == 3
    for number, text in enumerate(texts):
        assert text.count(f"Sentence {number} ") >= 18
        assert text.count("Sentence ") <= 22


def test_text_before_the_first_heading_is_a_section():
    pieces = [("", 0, sentences(20)), ("A", 1, sentences(20, 1))]
    first, second = parts(outlined(*pieces), SummaryUnit.SECTION)
    assert first.startswith(sentences(18))
    assert second.count("Sentence 1 ") >= 18


def test_a_heading_that_is_used_twice_makes_two_sections():
    text = sentences(20)
    assert len(parts(outlined(("A", 1, text), ("A", 1, text)), SummaryUnit.SECTION)) == 2


def test_a_section_too_short_for_a_leaf_belongs_to_its_neighbour():
    short = [(f"Part {n}", 2, "A word or two. ") for n in range(12)]
    texts = parts(outlined(("All", 1, ""), *short, ("End", 1, sentences(9))), SummaryUnit.SECTION)
    assert len(texts) == 2
    assert texts[0].count("Part") >= 11


def test_text_without_headings_is_divided_by_chunks():
    parsed = paged(sentences(30), sentences(30, 1))
    assert parts(parsed, SummaryUnit.SECTION) == parts(parsed, SummaryUnit.CHUNK)


# The following tests cover properties of all sections.

WORDS = st.lists(st.sampled_from(["word", "other. ", "end.\n\n", "猫喜欢睡觉。"]), max_size=150)
PIECES = st.lists(st.tuples(WORDS, st.integers(0, 3)), min_size=1, max_size=8)


@given(PIECES, st.sampled_from(SummaryUnit), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_sections_contain_every_leaf_once_and_in_order(pieces, unit, with_pages, overlap):
    texts = [" ".join(words) for words, _ in pieces]
    outline = outlined(
        ("", 0, "x"),
        *(
            (f"T{n}", depth, text)
            for n, (text, (_, depth)) in enumerate(zip(texts, pieces, strict=True))
        ),
    )
    half = len(outline.text) // 2
    spans = (PageSpan(1, 0, half), PageSpan(2, half, len(outline.text)))
    parsed = ParsedText(outline.text, outline.sections, spans if with_pages else ())
    tree: Tree = build_tree(parsed, TreeSettings((32, 64), overlap))
    ranges = sections(parsed, tree, 0, unit)
    assert all(ranges)
    assert [leaf for section in ranges for leaf in section] == list(range(tree.counts[0]))


# The following tests cover the headings of sections.

OUTLINE = (Section("Book", 1, 0), Section("Keys", 2, 10), Section("Rotate", 3, 20))


@pytest.mark.parametrize(
    ("title", "section", "expected"),
    [
        ("Guide", 2, "Guide - Book > Keys > Rotate"),
        ("Guide", 0, "Guide - Book"),
        ("Guide", NONE, "Guide"),
        ("", 1, "Book > Keys"),
        ("", NONE, ""),
        ("Book", 1, "Book - Keys"),
        ("Book", 0, "Book"),
        ("Keys", 2, "Keys - Book > Keys > Rotate"),
    ],
)
def test_the_heading_of_a_section_has_the_title_and_the_section_path(title, section, expected):
    assert heading(title, OUTLINE, section_parents(OUTLINE), section) == expected
