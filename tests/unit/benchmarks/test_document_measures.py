"""The measures compare what was read of a print with the document that was printed."""

from dataclasses import replace

import pytest

from benchmarks.documents.intervals import ratio, total
from benchmarks.documents.measures import Comparison, Matches, compare
from benchmarks.documents.print_layouts import layout_of
from benchmarks.documents.printed_sets import SpanMap
from benchmarks.documents.printer import PrintedDocument
from benchmarks.documents.read_tables import rows_in
from benchmarks.documents.source_document import (
    Block,
    Cell,
    Heading,
    Paragraph,
    Run,
    SourceDocument,
    Style,
    Table,
    plain,
)
from hrag.evaluation.questions import TextSpan
from indexer_svc.parsers.parsed_file import Heading as ReadHeading
from indexer_svc.parsers.parsed_file import PageRange, ParsedFile

TABLE = Table(
    ((Cell("Name"), Cell("Price")),),
    ((Cell("Pump"), Cell("12.5")), (Cell("Valve"), Cell("7"))),
)
TABLE_TEXT = "| Name | Price |\n| --- | --- |\n| Pump | 12.5 |\n| Valve | 7 |"
HEADER_TEXT = "| Name | Price |\n| --- | --- |\n"
TWO_TABLES_TEXT = f"{HEADER_TEXT}| Pump | 12.5 |\n\n{HEADER_TEXT}| Valve | 7 |"


def printed(
    *blocks: Block,
    notes: tuple[str, ...] = (),
    heads: tuple[tuple[str, ...], ...] = ((),),
    contents_page_count: int = 0,
) -> PrintedDocument:
    document = SourceDocument("d", "d", blocks, tuple(map(plain, notes)))
    return PrintedDocument(document, layout_of(document), {}, heads, contents_page_count)


def read(*pages: str, headings: tuple[tuple[int, str], ...] = ()) -> ParsedFile:
    """Returns what a reader may have read: the texts of pages."""
    ranges = []
    start = 0
    for page in pages:
        ranges.append(PageRange(start, start + len(page)))
        start += len(page) + 2
    read_headings = tuple(ReadHeading(title, depth, 0) for depth, title in headings)
    return ParsedFile("\n\n".join(pages), tuple(ranges), read_headings)


def paragraphs(*texts: str) -> tuple[Paragraph, ...]:
    return tuple(Paragraph(plain(text)) for text in texts)


def order(comparison: Comparison) -> float:
    return comparison.ordered_count / comparison.neighbour_count


def sections_of(*headings: tuple[int, str]) -> PrintedDocument:
    return printed(*(Heading(depth, plain(title)) for depth, title in headings))


@pytest.mark.parametrize(
    ("headings", "right"),
    [
        (((1, "Title"), (2, "One"), (2, "Two")), 3),
        (((2, "Title"), (5, "One"), (5, "Two")), 3),
        (((1, "Title"), (2, "One"), (3, "Two")), 2),
        (((1, "Title"), (2, "Two"), (2, "One")), 2),
        (((1, "Title"), (2, "One."), (2, "Two"), (2, "Wrong")), 3),
        ((), 0),
    ],
)
def test_a_section_needs_its_title_depth_and_place(
    headings: tuple[tuple[int, str], ...], right: int
) -> None:
    document = sections_of((1, "Title"), (2, "One"), (2, "Two"))
    sections = compare(document, read("", headings=headings)).sections
    assert sections == Matches(3, len(headings), right)


def test_f1_is_one_if_there_is_nothing_to_read() -> None:
    assert Matches().f1 == 1
    assert Matches(2, 2, 1).f1 == 0.5
    assert (Matches(1, 2, 1) + Matches(1, 0, 0)) == Matches(2, 2, 1)


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        (TABLE_TEXT, Matches(4, 4, 4)),
        ("Name: Pump\nPrice: 12.5\n\nName: Valve\nPrice: 7", Matches(4, 4, 4)),
        (TABLE_TEXT.replace("12.5", "12"), Matches(4, 4, 3)),
        (TABLE_TEXT.replace("Price", "Weight"), Matches(4, 4, 2)),
        ("| Pump | 12.5 |\n| --- | --- |\n| Valve | 7 |", Matches(4, 2, 0)),
        ("Pump 12.5\nValve 7", Matches(4, 0, 0)),
        (f"{TABLE_TEXT}\n\n{TABLE_TEXT}", Matches(4, 8, 4)),
        (TWO_TABLES_TEXT, Matches(4, 4, 4)),
    ],
    ids=["markdown", "records", "value", "name", "no header", "text", "twice", "two pages"],
)
def test_a_cell_needs_its_row_and_the_name_of_its_column(text: str, cells: Matches) -> None:
    assert compare(printed(TABLE), read(text)).cells == cells


def test_a_record_that_was_divided_is_one_row() -> None:
    long = "word " * 118
    text = f"Name: Pump\nRemark: {long}\n\nName: Pump\nPrice: 7"
    assert [[name for name, _ in row] for row in rows_in(text)] == [["Name", "Remark", "Price"]]
    short = "Name: Pump\nRemark: w\n\nName: Pump\nPrice: 7"
    assert len(rows_in(short)) == 2


def test_code_and_sentences_are_no_tables() -> None:
    assert rows_in("```\na: 1\nb: 2\n```\n\nNote: this is a sentence.") == []
    assert rows_in("| a\\|b | c |\n| --- | --- |\n| 1 | |") == [(("a|b", "1"),)]


def test_words_that_are_missing_are_lost_and_other_words_are_added() -> None:
    document = printed(*paragraphs("The administration of the pump"), TABLE)
    comparison = compare(document, read(f"The adminis- tration of the pump\n\n{TABLE_TEXT}"))
    assert (comparison.word_count, comparison.lost_word_count) == (11, 1)
    assert comparison.added_word_count == 2
    assert comparison.examples["words"] == ("administration",)


def test_repeated_names_of_columns_are_not_added_words() -> None:
    records = "Name: Pump\nPrice: 12.5\n\nName: Valve\nPrice: 7"
    assert compare(printed(TABLE), read(records)).added_word_count == 0


LEFT, RIGHT = "a1 a2 a3 a4 a5 a6", "b1 b2 b3 b4 b5 b6"


def test_words_of_columns_that_were_mixed_are_out_of_order() -> None:
    document = printed(*paragraphs(LEFT, RIGHT))
    assert order(compare(document, read(f"{LEFT}\n\n{RIGHT}"))) == 1
    mixed = compare(document, read("a1 a2 b1 b2\na3 a4 b3 b4\na5 a6 b5 b6"))
    assert mixed.lost_word_count == 0
    assert (mixed.ordered_count, mixed.neighbour_count) == (6, 11)
    swapped = compare(document, read(f"{RIGHT}\n\n{LEFT}"))
    assert (swapped.ordered_count, swapped.neighbour_count) == (10, 11)


def test_footnotes_and_tables_may_stand_between_the_words_of_a_paragraph() -> None:
    text = (Run("a1 a2"), Run("1", Style.NOTE), Run("a3 a4 a5 a6"))
    document = printed(Paragraph(text), TABLE, notes=("n1 n2",))
    comparison = compare(document, read(f"a1 a2 [1] a3\n\n1. n1 n2\n\n{TABLE_TEXT}", "a4 a5 a6"))
    assert comparison.lost_word_count == 0
    assert order(comparison) == 1
    assert comparison.neighbour_count == 6 + 2


def test_a_word_between_neighbours_is_out_of_order_unless_a_word_was_lost() -> None:
    document = printed(*paragraphs("a1 a2 a3 a4"))
    assert compare(document, read("a1 a2 x a3 a4")).ordered_count == 2
    comparison = compare(document, read("a1 ax a3 a4"))
    assert (comparison.neighbour_count, comparison.ordered_count) == (1, 1)


def test_heads_that_were_left_in_are_counted_on_their_pages() -> None:
    document = printed(
        *paragraphs("a1 a2 a3", "b1 b2 b3"), heads=(("The manual", "1"), ("The manual", "2"))
    )
    assert compare(document, read("a1 a2 a3", "b1 b2 b3")).head_count == 0
    left = compare(document, read("The manual\n\na1 a2 a3\n\n1", "b1 b2 b3\n\n2"))
    assert left.examples["heads"] == ("page 1: The manual", "page 1: 1", "page 2: 2")
    # The number of another page is a word that was added, but no head of this page.
    assert compare(document, read("a1 a2 a3", "b1 b2 b3\n\n7")).head_count == 0


def test_a_head_that_repeats_a_heading_is_counted_if_it_is_in_the_text_twice() -> None:
    heading = Heading(2, plain("Safety rules"))
    document = printed(heading, *paragraphs("a1 a2"), heads=(("Safety rules",),))
    assert compare(document, read("## Safety rules\n\na1 a2")).head_count == 0
    assert compare(document, read("Safety rules\n\n## Safety rules\n\na1 a2")).head_count == 1


def test_lines_of_a_contents_page_that_were_left_in_are_counted() -> None:
    headings = (Heading(2, plain("First part")), Heading(2, plain("Second part")))
    document = printed(*headings, heads=((), ()), contents_page_count=1)
    body = "## First part\n\n## Second part"
    assert compare(document, read("", body)).contents_line_count == 0
    assert compare(document, read("First part 2\nSecond part 2", body)).contents_line_count == 2


def test_examples_are_few() -> None:
    document = printed(*paragraphs("a b c d e f g h"))
    assert len(compare(document, read("")).examples["words"]) == 4


def test_ratios_are_of_sums_and_have_intervals() -> None:
    same = ratio([1, 1, 1, 1], [2, 2, 2, 2])
    assert same == (0.5, 0.5, 0.5, 0)
    mixed = ratio([9, 0, 0, 0, 0, 0], [10, 10, 10, 10, 10, 10])
    assert mixed.value == pytest.approx(0.15)
    assert mixed.low == 0
    assert 0.15 < mixed.high < 0.6
    assert mixed.noise > 0
    assert ratio([], []) == (0, 0, 0, 0)
    assert total([1, 2, 0]).value == 3
    assert ratio([1, 2], [3, 4]) == ratio([1, 2], [3, 4])


def test_spans_of_a_print_are_mapped_to_the_text() -> None:
    source = "# Title\n\nThe first words. The second words."
    text = "The first words. 1\n\nManual\n\nThe second words."
    span_map = SpanMap(source, text)
    assert (span_map.word_count, span_map.lost_words) == (7, ["Title"])

    def mapped(part: str) -> list[str]:
        start = text.index(part)
        spans = span_map.mapped(TextSpan("d", start, start + len(part)))
        return [source[span.char_start : span.char_end] for span in spans]

    assert mapped(text) == ["The first words. The second words."]
    assert mapped("first words. 1\n\nManual\n\nThe sec") == ["first words. The"]
    assert mapped("Manual") == []


def test_the_layout_of_a_document_depends_on_its_name_alone() -> None:
    document = SourceDocument("d", "d", paragraphs("a"))
    assert layout_of(document) == layout_of(replace(document, title="t"))
    layouts = {layout_of(replace(document, name=str(number))) for number in range(20)}
    assert len(layouts) > 10
