"""Each block of a table's text can be understood without the other blocks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers import table_text
from indexer_svc.parsers.table_text import MAX_RECORD_CHARS, TableBlock

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


def test_with_header_rows_the_first_row_is_a_header_whatever_its_values_are():
    rows = [("1", "1"), *MANY]
    assert table_blocks(rows, header_rows=1)[0] == "1: Pump 0\n1: 0.5"


def test_rows_with_one_cell_above_the_header_become_separate_paragraphs():
    blocks = table_blocks([("Prices 2026",), (), HEADER, *MANY])
    assert blocks[:2] == ["Prices 2026", "Name: Pump 0\nPrice: 0.5"]


def test_a_first_row_of_years_is_a_header():
    rows = [("Item", "2025", "2026"), *((f"Item {n}", str(n), str(n * n)) for n in range(100))]
    assert table_blocks(rows)[7] == "Item: Item 7\n2025: 7\n2026: 49"


def test_a_column_without_a_name_costs_no_other_column_its_name():
    rows = [("Name", "", "Price"), *((f"Pump {n}", "in stock", str(n)) for n in range(100))]
    assert table_blocks(rows)[7] == "Name: Pump 7\nin stock\nPrice: 7"


def test_a_name_may_occur_twice():
    rows = [("Name", "Phone", "Phone"), *((f"Ann {n}", f"5-{n}", f"7-{n}") for n in range(100))]
    assert table_blocks(rows)[7] == "Name: Ann 7\nPhone: 5-7\nPhone: 7-7"


TWO_ROWS = [("", "2025", "", "2026", ""), ("Item", "Sales", "Cost", "Sales", "Cost")]


@pytest.mark.parametrize("header_rows", [None, 2])
def test_a_header_of_two_rows_gives_each_column_one_name(header_rows):
    rows = [*TWO_ROWS, *((f"Item {n}", *map(str, range(n, n + 4))) for n in range(100))]
    record = "Item: Item 7\n2025 Sales: 7\n2025 Cost: 8\n2026 Sales: 9\n2026 Cost: 10"
    assert table_blocks(rows, header_rows=header_rows)[7] == record
    (table,) = table_blocks(rows[:4], header_rows=header_rows)
    assert table.splitlines()[0] == "| Item | 2025 Sales | 2025 Cost | 2026 Sales | 2026 Cost |"
    assert len(table.splitlines()) == 4


def test_a_title_in_a_header_that_the_caller_knows_is_a_paragraph():
    rows = [("Prices", ""), HEADER, *MANY]
    assert table_blocks(rows, header_rows=2)[:2] == ["Prices", "Name: Pump 0\nPrice: 0.5"]


def test_empty_rows_of_a_header_that_the_caller_knows_do_not_count_rows_below_it():
    rows = [("", ""), HEADER, *MANY]
    assert table_blocks(rows, header_rows=2)[0] == "Name: Pump 0\nPrice: 0.5"


def test_a_repeated_header_is_left_out():
    rows = [HEADER, *MANY, HEADER, ("Valve", "3")]
    assert table_blocks(rows)[-2:] == ["Name: Pump 99\nPrice: 99.5", "Name: Valve\nPrice: 3"]


def test_without_a_header_the_first_cell_may_name_its_row():
    rows = [(f"property {n}", f"value {n}", "") for n in range(100)]
    rows += [("property", "a", "b"), ("", "c", ""), ("d", "", "")]
    blocks = table_blocks(rows, header_rows=0, has_row_headers=True)
    assert blocks[7] == "property 7: value 7"
    assert blocks[-3:] == ["property: a | b", "c", "d"]


def test_names_of_columns_without_values_are_written_once():
    rows = [("Name", "Note", "Price"), *((f"Pump {n}", "", str(n)) for n in range(100))]
    assert table_blocks(rows, header_rows=1)[:2] == ["Note", "Name: Pump 0\nPrice: 0"]


def test_a_header_without_rows_is_a_line():
    assert table_blocks([[f"column {n}" for n in range(300)]])[0].startswith("column 0 | column 1")


def test_a_long_first_cell_is_not_repeated_in_a_divided_record():
    names = [f"column {number}" for number in range(200)]
    records = table_blocks([names, ["text " * 100, *map(str, range(1, 200))]], header_rows=1)
    assert len(records) > 1
    assert sum("text" in record for record in records) == 1


def test_the_rows_of_a_long_table_have_their_numbers():
    rows = [("Prices", ""), HEADER, *MANY]
    blocks = list(table_text.table_blocks(rows, row_numbers=range(5, 5 + len(rows))))
    assert [block.row_number for block in blocks] == [5, *range(7, 107)]
    assert not any(block.is_continuation for block in blocks)


def test_the_rows_of_a_short_table_have_their_numbers():
    rows = [HEADER, *MANY[:2]]
    assert list(table_text.table_blocks(rows, row_numbers=(3, 4, 6))) == [
        TableBlock("| Name | Price |\n| --- | --- |", 3),
        TableBlock("| Pump 0 | 0.5 |", 4, is_continuation=True),
        TableBlock("| Pump 1 | 1.5 |", 6, is_continuation=True),
    ]


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


CELL = st.one_of(st.text(max_size=30), st.sampled_from(("2023", "7", "12.5", "Name", "a", "-")))
OPTIONS = st.fixed_dictionaries(
    {"header_rows": st.sampled_from((None, 0, 1, 2, 5)), "has_row_headers": st.booleans()}
)


@given(st.lists(st.lists(CELL, max_size=6), max_size=60), OPTIONS)
def test_no_cell_is_lost(rows, options):
    text = "\n".join(table_blocks(rows, **options))
    for cell in (cell for row in rows for cell in row):
        written = " ".join(cell.split())
        assert written in text or written.replace("|", "\\|") in text


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=40),
    st.integers(0, 40),
    OPTIONS,
)
def test_each_block_has_cells_of_one_row_and_its_number(filled, width, options):
    """The cells are numbered, so that a block shows from which row each of its cells comes."""
    rows = [
        [f"r{row}c{column}{'x' * width}." if cell else "" for column, cell in enumerate(cells)]
        for row, cells in enumerate(filled)
    ]
    header = [[f"name {column}" for column in range(20)]] * (options["header_rows"] or 0)
    rows = [*header, *rows]
    blocks = list(table_text.table_blocks(rows, **options, row_numbers=range(1, len(rows) + 1)))
    found = set()
    for block in blocks:
        cells = re.findall(r"r(\d+)c(\d+)x*\.", block.text)
        found.update(cells)
        if options["header_rows"] is not None and cells:
            assert {row for row, _ in cells} == {cells[0][0]}
            assert block.row_number == int(cells[0][0]) + 1 + len(header)
    assert found == {
        (str(row), str(column))
        for row, cells in enumerate(filled)
        for column, cell in enumerate(cells)
        if cell
    }
