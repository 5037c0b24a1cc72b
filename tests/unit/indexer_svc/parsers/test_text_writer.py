"""Rows of tables become pages, whose number is limited."""

import pytest

from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import MAX_ROW_PAGES, TextWriter

AMPLE_BYTES = 1 << 22


def pages(parsed: ParsedFile) -> list[tuple[int, str]]:
    return [(page.number, parsed.text[page.char_start : page.char_end]) for page in parsed.pages]


def test_rows_continue_a_page_of_their_number():
    writer = TextWriter(AMPLE_BYTES)
    writer.page(1)
    writer.heading(1, "Sheet")
    writer.table([("a", "b"), ("c", "d")], row_numbers=(1, 2))
    writer.page(1)
    writer.heading(1, "Other")
    writer.table([("e",), ("f",)], row_numbers=(1, 2))
    assert pages(writer.parsed()) == [
        (1, "# Sheet\n\n| a | b |\n| --- | --- |"),
        (2, "| c | d |"),
        (1, "# Other\n\ne"),
        (2, "f"),
    ]


def test_the_parts_of_a_divided_record_are_one_page():
    names = [f"column {number}" for number in range(100)]
    writer = TextWriter(AMPLE_BYTES)
    writer.table([names, ["x"] * 100, ["y"] * 100], header_rows=1, row_numbers=(1, 2, 3))
    parsed = writer.parsed()
    assert [number for number, _ in pages(parsed)] == [2, 3]
    assert parsed.text.count("\n\n") > 1


@pytest.mark.parametrize(
    ("row_count", "rows_per_page"),
    [(MAX_ROW_PAGES, 1), (MAX_ROW_PAGES + 1, 2), (2 * MAX_ROW_PAGES, 2), (25_000, 4)],
)
def test_a_text_has_at_most_max_row_pages_pages_of_rows(row_count, rows_per_page):
    writer = TextWriter(AMPLE_BYTES)
    rows = [(f"row {number}",) for number in range(row_count)]
    writer.table(rows, row_numbers=range(1, row_count + 1))
    parsed = writer.parsed()
    assert len(parsed.pages) <= MAX_ROW_PAGES
    assert [page.number for page in parsed.pages] == list(range(1, row_count + 1, rows_per_page))
    for number, text in pages(parsed):
        assert text.startswith(f"row {number - 1}")
    assert parsed.pages[-1].char_end == len(parsed.text)


def test_a_table_without_row_numbers_has_no_pages():
    writer = TextWriter(AMPLE_BYTES)
    writer.table([("a", "b")])
    assert writer.parsed().pages == ()
