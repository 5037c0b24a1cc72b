"""Numbers of lists and headings in Word documents are those that Word shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.values.formats import DOCX
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.word_files import (
    definition,
    item,
    level,
    list_of,
    paragraph,
    row,
    style,
    table,
    word_file,
)

AMPLE_BYTES = 1 << 20
OUTLINE = definition(0, level(0, "%1."), level(1, "%1.%2"), level(2, "%1.%2.%3"))


def lines(body: str, numbering: str, styles: str = "") -> list[str]:
    """Returns the lines of a document's text without indentation and empty lines."""
    content = word_file(body, numbering=numbering, styles=styles)
    text = parse(content, DOCX, AMPLE_BYTES).text
    return [line.strip() for line in text.splitlines() if line]


def items(*levels_and_lists: tuple[int, int]) -> str:
    """Returns items `x`, each given by its level and its list."""
    return "".join(item("x", num_id, depth) for depth, num_id in levels_and_lists)


def labels(body: str, numbering: str, styles: str = "") -> list[str]:
    """Returns what is before the `x` of each item."""
    return [line.removesuffix("x").strip() for line in lines(body, numbering, styles)]


def test_a_list_continues_after_other_paragraphs():
    body = item("one", 1) + paragraph("between") + item("two", 1)
    numbering = OUTLINE + list_of(1, 0)
    assert lines(body, numbering) == ["1. one", "between", "2. two"]


def test_lists_of_different_definitions_are_counted_separately():
    numbering = definition(0, level(0, "%1.")) + definition(1, level(0, "%1)", "lowerLetter"))
    numbering += list_of(1, 0) + list_of(2, 1)
    assert labels(items((0, 1), (0, 2), (0, 1), (0, 2)), numbering) == ["1.", "a)", "2.", "b)"]


def test_lists_of_one_definition_continue_each_other_unless_they_restart():
    restart = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>'
    numbering = OUTLINE + list_of(1, 0) + list_of(2, 0) + list_of(3, 0, restart)
    body = items((0, 1), (0, 2), (0, 3), (0, 3), (0, 1))
    assert labels(body, numbering) == ["1.", "2.", "5.", "6.", "7."]


def test_an_item_stops_the_levels_below_it():
    numbering = OUTLINE + list_of(1, 0)
    body = items((0, 1), (1, 1), (2, 1), (2, 1), (1, 1), (2, 1), (0, 1), (1, 1))
    expected = ["1.", "1.1", "1.1.1", "1.1.2", "1.2", "1.2.1", "2.", "2.1"]
    assert labels(body, numbering) == expected


def test_an_item_starts_the_levels_above_it():
    assert labels(items((1, 1), (1, 1), (0, 1)), OUTLINE + list_of(1, 0)) == ["1.1", "1.2", "2."]


@pytest.mark.parametrize(
    ("restart", "expected"),
    [
        ("", ["1", "a", "i", "b", "i", "2", "a", "i"]),
        ('<w:lvlRestart w:val="0"/>', ["1", "a", "i", "b", "ii", "2", "a", "iii"]),
        ('<w:lvlRestart w:val="1"/>', ["1", "a", "i", "b", "ii", "2", "a", "i"]),
    ],
)
def test_a_level_says_which_levels_stop_it(restart, expected):
    deepest = level(2, "%3", "lowerRoman", extra=restart)
    numbering = definition(0, level(0, "%1"), level(1, "%2", "lowerLetter"), deepest)
    body = items((0, 1), (1, 1), (2, 1), (1, 1), (2, 1), (0, 1), (1, 1), (2, 1))
    assert labels(body, numbering + list_of(1, 0)) == expected


def test_legal_numbers_are_decimal_on_all_levels():
    numbering = definition(
        0, level(0, "Article %1", "upperRoman"), level(1, "%1.%2", extra="<w:isLgl/>")
    )
    assert labels(items((0, 1), (1, 1)), numbering + list_of(1, 0)) == ["Article I", "1.1"]


def test_a_list_replaces_a_level_of_its_definition():
    other = f'<w:lvlOverride w:ilvl="0">{level(0, "(%1)", "upperLetter", 3)}</w:lvlOverride>'
    assert labels(items((0, 1), (0, 1)), OUTLINE + list_of(1, 0, other)) == ["(C)", "(D)"]


def test_bullets_are_bullets_whatever_their_sign():
    numbering = definition(0, level(0, "\uf0b7", "bullet"), level(1, "o", "bullet"))
    assert labels(items((0, 1), (1, 1)), numbering + list_of(1, 0)) == ["-", "-"]


def test_a_level_without_text_shows_nothing():
    numbering = definition(0, level(0, "", "none")) + list_of(1, 0)
    assert lines(items((0, 1)), numbering) == ["x"]


def test_numbers_in_tables_count_too():
    numbering = OUTLINE + list_of(1, 0)
    cells = table(row(f"<w:tc>{item('a', 1)}</w:tc>", f"<w:tc>{item('b', 1)}</w:tc>"))
    assert lines(cells + item("c", 1), numbering)[-1] == "3. c"
    assert "1. a" in lines(cells, numbering)[0]


def test_an_empty_item_is_counted_unless_it_is_hidden_or_ends_a_section():
    numbering = OUTLINE + list_of(1, 0)
    number = '<w:numPr><w:numId w:val="1"/></w:numPr>'
    hidden = paragraph(properties=f"{number}<w:rPr><w:vanish/></w:rPr>")
    section = paragraph(properties=f"{number}<w:sectPr/>")
    assert lines(item("", 1) + item("two", 1), numbering) == ["2. two"]
    assert lines(hidden + section + item("one", 1), numbering) == ["1. one"]


NUMBERED = '<w:pPr><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="1"/></w:numPr></w:pPr>'
STYLES = (
    style("H1", "heading 1", NUMBERED.format(level=0))
    + style("H2", "heading 2", NUMBERED.format(level=1))
    + style("Mine", "Company heading", based_on="H2")
    + style("Plain", "No number", '<w:pPr><w:numPr><w:numId w:val="0"/></w:numPr></w:pPr>', "H2")
)


def test_headings_are_numbered_by_their_styles():
    styles = ("H1", "H2", "Mine", "Plain", "H1")
    body = "".join(paragraph("Title", style=name) for name in styles)
    assert lines(body, OUTLINE + list_of(1, 0), STYLES) == [
        *("# 1. Title", "## 1.1 Title", "## 1.2 Title", "## Title", "# 2. Title"),
    ]


def test_a_level_names_the_style_whose_paragraphs_it_numbers():
    link = '<w:pStyle w:val="Clause"/>'
    numbering = definition(0, level(0, "%1."), level(1, "%1.%2", extra=link)) + list_of(1, 0)
    styles = style("Clause", "Clause", '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>')
    assert lines(paragraph("x", style="Clause"), numbering, styles) == ["1.1 x"]


def test_a_paragraph_leaves_the_list_of_its_style():
    off = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="0"/></w:numPr>'
    body = paragraph("Title", style="H1", properties=off)
    assert lines(body, OUTLINE + list_of(1, 0), STYLES) == ["# Title"]


def test_a_definition_may_refer_to_a_style_that_names_a_list():
    numbering = (
        '<w:abstractNum w:abstractNumId="9"><w:numStyleLink w:val="Ours"/></w:abstractNum>'
        + OUTLINE
        + list_of(1, 0)
        + list_of(2, 9)
    )
    styles = style(
        "Ours", "Ours", '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>', kind="numbering"
    )
    assert labels(items((0, 2), (1, 2)), numbering, styles) == ["1.", "1.1"]


def test_definitions_that_refer_to_each_other_cause_no_endless_loop():
    numbering = (
        '<w:abstractNum w:abstractNumId="0"><w:numStyleLink w:val="Ours"/></w:abstractNum>'
        + list_of(1, 0)
    )
    styles = style(
        "Ours", "Ours", '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>', kind="numbering"
    )
    assert lines(items((0, 1)), numbering, styles) == ["x"]


@pytest.mark.parametrize("broken", ["x", "-1", "99", "9999999999", ""])
def test_levels_and_lists_out_of_range_cause_no_error(broken):
    body = paragraph(
        "x", properties=f'<w:numPr><w:ilvl w:val="{broken}"/><w:numId w:val="1"/></w:numPr>'
    )
    assert lines(body, OUTLINE + list_of(1, 0))[0].endswith("x")
    assert lines(items((0, 7)), OUTLINE + list_of(1, 0)) == ["x"]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 2])), max_size=30))
def test_numbers_of_a_level_ascend_until_a_level_above_has_an_item(steps):
    numbering = definition(0, *(level(depth, f"%{depth + 1}") for depth in range(3)))
    seen = labels(items(*steps), numbering + list_of(1, 0) + list_of(2, 0))
    running = [0, 0, 0]
    for (depth, _), label in zip(steps, seen, strict=True):
        running[depth] += 1
        running[:depth] = [max(1, number) for number in running[:depth]]
        running[depth + 1 :] = [0] * (2 - depth)
        assert label == str(running[depth])
