"""Each block of a table's text can be understood without the other blocks."""

from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers import table_text
from indexer_svc.parsers.table_text import MAX_RECORD_CHARS

HEADER = ("Name", "Price")
MANY = [(f"Pump {number}", f"{number}.5") for number in range(100)]


def table_blocks(rows, **options):
    return [block.text for block in table_text.table_blocks(rows, **options)]


def test_a_short_table_stays_a_table():
    assert table_blocks([HEADER, ("Pump", "1|5")]) == [
        "| Name | Price |\n| --- | --- |\n| Pump | 1\\|5 |"
    ]


def test_the_rows_of_a_long_table_are_records_with_its_headers():
    blocks = table_blocks([HEADER, *MANY])
    assert len(blocks) == len(MANY)
    assert blocks[7] == "Name: Pump 7\nPrice: 7.5"


def test_a_missing_value_is_left_out_of_its_record():
    assert table_blocks([HEADER, *MANY, ("", "3")])[-1] == "Price: 3"


def test_without_a_header_each_row_becomes_a_line():
    assert table_blocks(MANY)[1] == "Pump 1 | 1.5"


def test_a_first_row_of_years_is_a_header_if_its_first_cell_is_empty():
    rows = [("", "2025", "2026"), *((f"Pump {number}", "1", "2") for number in range(100))]
    assert table_blocks(rows)[0] == "Pump 0\n2025: 1\n2026: 2"


def test_with_has_header_the_first_row_is_a_header_whatever_its_values_are():
    rows = [("1", "1"), *MANY]
    assert table_blocks(rows, header_rows=1)[0] == "1: Pump 0\n1: 0.5"


def test_rows_with_one_cell_above_the_header_become_separate_paragraphs():
    blocks = table_blocks([("Prices 2026",), (), HEADER, *MANY])
    assert blocks[:2] == ["Prices 2026", "Name: Pump 0\nPrice: 0.5"]


def test_empty_rows_and_columns_are_left_out_and_a_cell_is_one_line():
    assert table_blocks([("", "", ""), ("a\nb", "", " c "), ("", " ", "")]) == [
        "| a b | c |\n| --- | --- |"
    ]
    assert table_blocks([("", ""), ()]) == []
    assert table_blocks([]) == []


def test_a_table_of_one_column_becomes_a_list_of_paragraphs():
    assert table_blocks([("a",), ("b",)]) == ["a", "b"]


def test_a_row_may_have_fewer_cells_than_the_header():
    assert table_blocks([("Pump",), HEADER, ("a",)], header_rows=1) == [
        "| Pump |  |\n| --- | --- |\n| Name | Price |\n| a |  |"
    ]
    assert table_blocks([(*HEADER, "Note"), *MANY, ("a", "1", "b"), ("c",)])[-2:] == [
        "Name: a\nPrice: 1\nNote: b",
        "Name: c",
    ]


def test_a_cell_of_many_numbers_and_a_word_may_be_a_column_name():
    """If each number in the cell were read twice, this test would take seconds."""
    names = ("1 " * 100_000 + "x", "y")
    assert table_blocks([names, *MANY])[0].endswith("x: Pump 0\ny: 0.5")


def test_a_table_may_have_thousands_of_columns():
    """Each part of the row's record fits into a leaf and begins with the row's first cell."""
    names = [f"column {number}" for number in range(5_000)]
    records = table_blocks([names, ["Pump", *map(str, range(1, 5_000))]], header_rows=1)
    assert all(record.startswith("column 0: Pump\n") for record in records)
    assert max(map(len, records)) <= MAX_RECORD_CHARS
    lines = [line for record in records for line in record.splitlines()[1:]]
    assert lines == [f"column {number}: {number}" for number in range(1, 5_000)]


@given(st.lists(st.lists(st.text(max_size=30), max_size=6), max_size=60), st.booleans())
def test_no_cell_is_lost(rows, has_header):
    text = "\n".join(table_blocks(rows, header_rows=1 if has_header else None))
    for cell in (cell for row in rows for cell in row):
        written = " ".join(cell.split())
        assert written in text or written.replace("|", "\\|") in text
