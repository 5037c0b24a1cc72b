"""Titles and headers are recognised by the difference between names and values."""

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.table_header import (
    MAX_HEADER_ROWS,
    column_names,
    count_header_rows,
    count_titles,
    has_header_votes,
)

COUNT = 30
RANDOM = Random(7)


def rows(*columns):
    """Returns COUNT rows. A column is a function of the row's number, or a template for it."""
    return [
        tuple(
            column(number) if callable(column) else column.format(number, number * number)
            for column in columns
        )
        for number in range(COUNT)
    ]


def amount(_number):
    return str(RANDOM.randrange(40))


def year_like(_number):
    return str(RANDOM.randrange(1900, 2100))


def one_of(*values):
    return lambda _number: RANDOM.choice(values)


NAMED = rows("Pump {0}", "{1}")
FIVE = rows("Pump {0}", *["{1}"] * 4)
YEARS = ("", "2023", "", "2024", "")
KINDS = ("Product", "Revenue", "Cost", "Revenue", "Cost")

# For each table: its rows, the number of titles, and the number of rows of the header.
TABLES = {
    "names": ([("Name", "Price"), *NAMED], 0, 1),
    "years": ([("Metric", "2021", "2022"), *rows("Item {0}", "{0}", "{1}")], 0, 1),
    "years above values like years": (
        [("Country", "2020", "2021", "2022"), *rows("C {0}", *[year_like] * 3)],
        0,
        1,
    ),
    "a single year": ([("Country", "2023"), *NAMED], 0, 1),
    "fiscal years": ([("USD m", "FY2022", "FY2023E"), *rows("P {0}", "({0},000)", "-")], 0, 1),
    "quarters": ([("Item", "Q1 2023", "Q2 2023"), *rows("P {0}", "{0}", "{1}")], 0, 1),
    "months": ([("", "Jan", "Feb"), *rows("P {0}", "{0}", "{1}")], 0, 1),
    "numbers of months": (
        [("Station", *map(str, range(1, 13))), *rows("P {0}", *[amount] * 12)],
        0,
        1,
    ),
    "sizes": ([("Size", "38", "40", "42"), *rows("P {0}", *[amount] * 3)], 0, 1),
    "percentiles": (
        [("Percentile", "5", "10", "25", "50", "90"), *rows("P {0}", *[amount] * 5)],
        0,
        1,
    ),
    "ages": ([("Sex", "0-14", "15-64", "65+"), *rows("P {0}", *[amount] * 3)], 0, 1),
    "dates": ([("Item", "2026-01-01", "2026-02-01"), *rows("P {0}", "{0}", "{1}")], 0, 1),
    "German dates": ([("Posten", "31.12.2022"), *rows("P {0}", "1.{0},5")], 0, 1),
    "a column of dates": ([("Day", "Price"), *rows("2026-01-{0:02}", "{1}")], 0, 1),
    "a column of measures": ([("Flower", "Nectar"), *rows("P {0}", "{0} mg")], 0, 1),
    "a column of percentages": ([("Group", "2020"), *rows("P {0}", "{0}.5 %")], 0, 1),
    "missing values": ([("Country", "1960", "1961"), *rows("P {0}", "..", amount)], 0, 1),
    "an empty name": ([("Name", "", "Price"), *rows("P {0}", "in stock", "{1}")], 0, 1),
    "an empty first name": ([("", "Name", "Price"), *rows("{0}", "P {0}", "{1}")], 0, 1),
    "an empty corner": ([("", "7", "12", "9"), *rows("P {0}", *[amount] * 3)], 0, 1),
    "a name twice": ([("Name", "Phone", "Phone"), *rows("P {0}", "5-{0}", "7-{0}")], 0, 1),
    "texts": ([("Name", "City"), *rows("P {0}", "Town {0}")], 0, 1),
    "texts with a name twice": ([("Name", "Note", "Note"), *rows("P {0}", "a", "b")], 0, 1),
    "truth values": ([("Name", "Active"), *rows("P {0}", one_of("TRUE", "FALSE"))], 0, 1),
    "Chinese": ([("名称", "2023年"), *rows("泵{0}", "{1}")], 0, 1),
    "a repeated header": ([("Name", "City"), *rows("P {0}", "T {0}")] * 3, 0, 1),
    "a label above groups of rows": (
        [("", "2022", "2023"), ("Assets", "", ""), *rows("P {0}", "{0}", "{1}")],
        0,
        1,
    ),
    "cells that span rows of texts": (
        [("Region", "Country"), ("Europe", "Norway"), ("Europe", "Sweden"), *rows("Asia", "C{0}")],
        0,
        1,
    ),
    "a first value like a year": (
        [("Name", "", "Price"), ("P", "x", "1999"), *rows("P {0}", "y", "{1}")],
        0,
        1,
    ),
    "no header above numbers": (NAMED, 0, 0),
    "numbers only": (rows(amount, amount, amount), 0, 0),
    "no header above dates": (rows("2026-01-{0:02}", "{1}"), 0, 0),
    "no header above categories": (rows(one_of("red", "blue"), one_of("yes", "no")), 0, 0),
    "no header above series": (rows("P {0}", "1", "2", "3"), 0, 0),
    "two rows": ([YEARS, KINDS, *FIVE], 0, 2),
    "two rows with years below": (
        [("", "Revenue", "", "Cost", ""), ("Product", *["2022", "2023"] * 2), *FIVE],
        0,
        2,
    ),
    "two rows with repeated groups": (
        [("", "2023", "2023", "2024", "2024"), KINDS, *FIVE],
        0,
        2,
    ),
    "names that span two rows": (
        [("Product", "2023", "", "Total", ""), ("", "Revenue", "Cost", "", "x"), *FIVE],
        0,
        2,
    ),
    "names repeated in two rows": (
        [
            ("Product", "2023", "", "Total", "x"),
            ("Product", "Revenue", "Cost", "Total", "x"),
            *FIVE,
        ],
        0,
        2,
    ),
    "units": ([("Part", "Weight"), ("", "kg"), *NAMED], 0, 2),
    "units in brackets": ([("Part", "Weight"), ("", "[kg]"), *NAMED], 0, 2),
    "units of all columns": (
        [("time", "force"), ("s", "kN"), *rows("{0}", "{1}")],
        0,
        2,
    ),
    "units beside a column without a unit": (
        [("time", "force"), ("s", ""), *rows("{0}", "{1}")],
        0,
        1,
    ),
    "texts above numbers and texts": (
        [("Part", "Weight"), ("Nut", "light"), *NAMED],
        0,
        1,
    ),
    "two rows of texts": (
        [
            ("", "Contact", "", "Address", ""),
            ("Name", "Phone", "Mail", "Street", "City"),
            *rows("P {0}", "a b", "c@d", "s t", "u"),
        ],
        0,
        2,
    ),
    "three rows": ([("", "Europe", "", "", ""), YEARS, KINDS, *FIVE], 0, 3),
    "names over the same columns in two rows": (
        [
            ("", "Three months", "", "Six months", ""),
            ("", "June 30,", "", "June 30,", ""),
            ("in USD m", "2023", "2022", "2023", "2022"),
            *FIVE,
        ],
        0,
        3,
    ),
    "long texts": (rows("{0} " * 60, "text {0}"), 0, 0),
    "one group": ([("", "2023", "", "", ""), ("Product", *"ABCD"), *FIVE], 0, 2),
    "a title": ([("Prices 2026", ""), ("Name", "Price"), *NAMED], 1, 1),
    "two titles": ([("Prices",), ("in EUR",), ("Name", "Price"), *NAMED], 2, 1),
    "a title above two rows": ([("Report",), YEARS, KINDS, *FIVE], 1, 2),
    "a comment": ([("# by X", "version 2"), ("Name", "Price"), *NAMED], 1, 1),
    "comments": ([("# by X", "version 2"), ("# a", "b"), ("Name", "Price"), *NAMED], 2, 1),
    "a header with a mark": ([("#name", "price"), *NAMED], 0, 1),
    "notes": (
        [("Company X",), ("Currency", "EUR"), ("Name", *"ABCD"), *FIVE],
        2,
        1,
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_titles_and_header_are_counted(name):
    table, titles, header = TABLES[name]
    table = [list(row) for row in table]
    assert count_titles(table) == titles
    assert count_header_rows(table[titles:]) == header


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ([("Name", "Price")], ["Name", "Price"]),
        ([("Name",)], ["Name", ""]),
        ([YEARS, KINDS], ["Product", "2023 Revenue", "2023 Cost", "2024 Revenue", "2024 Cost"]),
        ([("Name", "2023", ""), ("Name", "A", "B")], ["Name", "2023 A", "2023 B"]),
        ([("Name", "2023", "", "Note"), ("", "A", "B", "")], ["Name", "2023 A", "2023 B", "Note"]),
        (
            [("", "EU", "", "", ""), YEARS, KINDS],
            [
                *("Product", "EU 2023 Revenue", "EU 2023 Cost"),
                *("EU 2024 Revenue", "EU 2024 Cost"),
            ],
        ),
        ([("Weight", "Name"), ("kg", "")], ["Weight kg", "Name"]),
        (
            [("", "Three months", ""), ("", "June 30,", ""), ("m", "2023", "2022")],
            ["m", "Three months June 30, 2023", "Three months June 30, 2022"],
        ),
    ],
)
def test_the_rows_of_a_header_give_each_column_one_name(header, names):
    assert column_names(header, len(names)) == names


@pytest.mark.parametrize(
    "table",
    [
        [["y", ""], *[["", "x"]] * 300_000],
        [["", "x"], ["y", ""]] * 150_000,
        [["7"] * 100_000] * 8,
        [["x" * 100_000] * 8] * 300,
    ],
    ids=["cells without a header", "alternating cells", "columns", "long cells"],
)
def test_large_tables_take_little_time(table):
    """If each row or column were examined, these tables would take minutes."""
    start = time.process_time()
    titles = count_titles(table)
    assert count_header_rows(table[titles:] or [["a"]]) >= 0
    assert time.process_time() - start < 5


def test_rows_that_are_repeated_by_all_rows_below_them_are_no_header():
    assert count_header_rows([("a", "a"), ("a", "b"), ("a", "a")]) == 0


def test_only_contrast_counts_as_a_vote():
    assert has_header_votes([("Name", "Price"), *NAMED])
    assert not has_header_votes([("Name", "City"), *rows("P {0}", "T {0}")])
    assert not has_header_votes(NAMED)
    assert not has_header_votes([("Name", "Price")])


CELL = st.text(st.sampled_from("ab 12.,-–%/年"), max_size=6).map(
    lambda text: " ".join(text.split())
)


@given(st.lists(st.lists(CELL, max_size=5).filter(any), max_size=12))
def test_any_table_has_a_count_of_titles_and_of_header_rows_below_its_size(table):
    titles = count_titles(table)
    assert 0 <= titles <= len(table)
    if titles < len(table):
        header = count_header_rows(table[titles:])
        assert 0 <= header <= min(MAX_HEADER_ROWS, len(table) - titles - 1)


@given(st.lists(st.lists(CELL, max_size=6), min_size=1, max_size=3))
def test_every_cell_of_a_header_is_in_a_name(header):
    names = column_names(header, 6)
    for row in header:
        for cell, name in zip(row, names, strict=False):
            assert cell in name
