"""Empty rows separate tables, but do not separate the rows of a table from its header."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.table_runs import row_runs

HEADER = ("Name", "Price")
PUMPS = [(f"Pump {number}", str(number)) for number in range(6)]
PAIRS = [("a", "b"), ("c", "d")]
TOWNS = [(f"Town {number}", "text") for number in range(6)]


def tables(rows):
    return [run.numbers for run in row_runs(rows)]


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        ([HEADER, *PUMPS], [[1, 2, 3, 4, 5, 6, 7]]),
        ([(), ("", " "), HEADER, PUMPS[0], ()], [[3, 4]]),
        ([("Report",), (), HEADER, *PUMPS[:2]], [[1], [3, 4, 5]]),
        ([HEADER, *PUMPS[:2], (), *PUMPS[2:4], (), *PUMPS[4:]], [[1, 2, 3, 5, 6, 8, 9]]),
        ([HEADER, (), *PUMPS[:3]], [[1, 3, 4, 5]]),
        ([("Prices",), HEADER, (), *PUMPS[:2]], [[1, 2, 4, 5]]),
        ([("Currency", "EUR"), (), HEADER, *PUMPS[:2]], [[1], [3, 4, 5]]),
        ([HEADER, *PUMPS[:2], (), ("Total", "9")], [[1, 2, 3, 5]]),
        ([HEADER, *PUMPS[:2], (), ("Total", "")], [[1, 2, 3], [5]]),
        ([HEADER, *PUMPS[:2], (), ("City", "Pumps"), *PUMPS[:2]], [[1, 2, 3], [5, 6, 7]]),
        ([HEADER, *PUMPS[:2], (), ("City", "Pumps"), (), *PUMPS[:2]], [[1, 2, 3], [5, 7, 8]]),
        ([HEADER, *PUMPS[:2], (), ("a", "1", "b")], [[1, 2, 3], [5]]),
        ([HEADER, *PUMPS[:2], (), ("Old pumps",), *PUMPS[2:4]], [[1, 2, 3, 5, 6, 7]]),
        ([HEADER, *PUMPS[:2], (), ("Towns",), *TOWNS[:2]], [[1, 2, 3], [5, 6, 7]]),
        ([("Name", "Kind"), *TOWNS, (), ("Pump", "City"), *PAIRS], [[*range(1, 8)], [9, 10, 11]]),
        ([("Name", "Kind"), *PAIRS, (), *TOWNS[:2]], [[1, 2, 3, 5, 6]]),
        ([("Name", "Kind"), *TOWNS[:2], (), TOWNS[3]], [[1, 2, 3, 5]]),
        ([HEADER, (), PUMPS[0], (), PUMPS[1], (), PUMPS[2]], [[1, 3, 5, 7]]),
        ([], []),
        ([(), ("",)], []),
    ],
    ids=[
        *("one table", "empty rows around it", "a title apart", "spaces", "a header apart"),
        *(
            "a title and a header apart",
            "a field above",
            "a total apart",
            "a note below",
            "another table",
        ),
        *("another header apart", "more columns", "a group with a label", "other values"),
        *(
            "texts with another header",
            "texts without a header",
            "a single row of texts",
            "each row apart",
            "no rows",
        ),
        "only empty rows",
    ],
)
def test_rows_are_divided_into_tables(rows, numbers):
    assert tables(rows) == numbers


def test_white_space_in_cells_becomes_single_spaces():
    (run,) = row_runs([(" a\n b ", "")])
    assert run.rows == [["a b", ""]]


def test_many_runs_take_linear_time():
    """If the kinds of the columns were found again for each run, this test would take a minute."""
    rows = [HEADER, *((f"Pump {number}", "1") for number in range(20_000))]
    start = time.process_time()
    assert len(tables([line for row in rows for line in (row, ())])) == 1
    assert time.process_time() - start < 20


@given(st.lists(st.lists(st.sampled_from(("", "a", "b", "7", "2023")), max_size=4), max_size=30))
def test_each_row_that_is_not_empty_is_in_one_table_in_order(rows):
    runs = list(row_runs(rows))
    numbers = [number for run in runs for number in run.numbers]
    assert numbers == [number for number, row in enumerate(rows, start=1) if any(row)]
    assert [row for run in runs for row in run.rows] == [rows[number - 1] for number in numbers]
