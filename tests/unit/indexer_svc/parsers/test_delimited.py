"""A file of separated values becomes a table or records."""

import csv
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooLarge
from hrag.values.read_report import PageUnit
from indexer_svc.parsers.delimited import parse_delimited, parse_tabbed

AMPLE_BYTES = 1 << 20
TABLE = "| Name | Price |\n| --- | --- |\n| Pump, big | 1.5 |"


@pytest.mark.parametrize(
    "text",
    [
        'Name,Price\n"Pump, big",1.5\n',
        "Name;Price\r\nPump, big;1.5\r\n",
        "\nName\tPrice\nPump, big\t1.5",
        "Name|Price\rPump, big|1.5",
        'Name,Price\n"Pump,\nbig",1.5',
        "Name;Price\nPump,\u2028big;1.5",
        "\ufeffName;Price\nPump,\x85big;1.5",
        '"Name";"Price"\nPump, big;1.5',
    ],
    ids=[
        *("comma", "semicolon", "tab", "bar", "line end in a cell", "separator of lines"),
        *("byte order mark", "quoted header"),
    ],
)
def test_a_file_becomes_a_table(text):
    parsed = parse_delimited(text.encode(), AMPLE_BYTES)
    assert (parsed.text, parsed.headings, parsed.title) == (TABLE, (), "")


def rows(template, count=20):
    return "".join(f"{template.format(number, number * 7 % 10)}\n" for number in range(count))


# Each text, and the separator of its cells.
SEPARATORS = {
    "decimal commas": ("name;price;city\n" + rows("pump;{0},{1};Oslo"), ";"),
    "decimal commas without a header": (rows("{0},5;{1},5;3,2"), ";"),
    "whole numbers": (rows("{0},{1},7"), ","),
    "a title above": ("Report of sales\n2024-01-01\n\nname;price\n" + rows("pump;{0},5", 2), ";"),
    "commas in a title": ("Report, of, sales\n\nname;price;x\n" + rows("pump;{0},5;y", 3), ";"),
    "a long preamble": (rows("Line, with, commas {0}", 12) + "\na;b;c\n" + rows("x;{0},5;y"), ";"),
    "fields above": ("Device,Logger 7\nSerial,12\n\nt,a,b,c\n" + rows("10:0{1}:00,{0},3,4"), ","),
    "lists in cells": ("name,tags,price\n" + rows("P{0},a;b,{1}"), ","),
    "bars in cells": ("name,tags,price\n" + rows("P{0},a|b,{1}"), ","),
    "sentences in cells": ("id;text;n\n" + rows("{0};Hello, this, and that;{1}"), ";"),
    "sentences in quotes": ("id,text\n" + rows('{0},"Hello; this; and that"'), ","),
    "rows of several lengths": ("a;b;c;d\n" + rows("x;{0},5;y") + rows("x;{0},5;y;z"), ";"),
    "tabs": ("name\tprice\n" + rows("P{0}, x\t{1},5"), "\t"),
    "bars": ("name|price\n" + rows("P{0}, x|{1},5"), "|"),
    "German dates": ("Datum;Betrag\n" + rows("0{1}.02.2024;-1.234,5{0}"), ";"),
    "coordinates": ("name;lat;lon\n" + rows("P{0};5{1},123;1,2{0}"), ";"),
    "JSON in cells": ("id,data\n" + rows('{0},"{{""a"": 1, ""b"": {1}}}"'), ","),
    "one row": ("a;b\n1,5;2,5", ";"),
    "a header only": ("a;b;c", ";"),
    "a mark that is not closed": ('a;b\n"x;1\ny;2\nz;3\n', ";"),
}


@pytest.mark.parametrize("name", SEPARATORS)
def test_the_separator_is_detected_by_the_shape_of_the_rows(name):
    text, separator = SEPARATORS[name]
    named = f"sep={separator}\n{text}"
    detected, given_ = (parse_delimited(each.encode(), AMPLE_BYTES) for each in (text, named))
    assert detected.text == given_.text


@pytest.mark.parametrize(
    "line", ["sep=;\n", "SEP=;\r\n", '"sep=;"\n', "\ufeffsep=;\n", "sep=;\r", "sep=; \n"]
)
def test_a_first_line_that_names_the_separator_is_no_text(line):
    parsed = parse_delimited(f"{line}name;price\npump;3,5\n".encode(), AMPLE_BYTES)
    assert parsed.text == "| name | price |\n| --- | --- |\n| pump | 3,5 |"
    assert [page.number for page in parsed.pages] == [2, 3]


@pytest.mark.parametrize("line", ["sep=\n", "sep=a\n", "sep=ab;\n", "separator=;\n", "x\nsep=;\n"])
def test_other_first_lines_are_text(line):
    parsed = parse_delimited(f"{line}name,price\npump,3\n".encode(), AMPLE_BYTES)
    assert line.strip().splitlines()[-1] in parsed.text.replace(" | ", ",")


def test_lines_above_and_between_tables_are_paragraphs():
    text = "Report\n2024-01-01\n\nname;price\npump;3,5\n\nOld\nname;weight\npump;7\n\nSource: X\n"
    parsed = parse_delimited(text.encode(), AMPLE_BYTES)
    assert parsed.text.split("\n\n") == [
        *("Report", "2024-01-01", "| name | price |\n| --- | --- |\n| pump | 3,5 |"),
        *("Old", "| name | weight |\n| --- | --- |\n| pump | 7 |", "Source: X"),
    ]
    assert parsed.page_unit is PageUnit.ROW
    assert [page.number for page in parsed.pages] == [1, 2, 4, 5, 7, 8, 9, 11]


def test_blank_lines_between_all_rows_do_not_separate_them_from_the_header():
    content = b"Name;Price\r\r\n" + b"Pump;1,5\r\r\n" * 200
    blocks = parse_delimited(content, AMPLE_BYTES).text.split("\n\n")
    assert blocks == ["Name: Pump\nPrice: 1,5"] * 200


def test_years_are_names_of_columns():
    content = "country,1960,1961\n" + rows("Country {0},{1},2", 100)
    assert parse_delimited(content.encode(), AMPLE_BYTES).text.startswith(
        "country: Country 0\n1960: 0\n1961: 2\n\n"
    )


def test_the_pages_are_the_rows_of_the_file():
    content = 'Name,Note\n"Pump","a\nb"\n\n' + rows("Pump {0},x", 100)
    parsed = parse_delimited(content.encode(), AMPLE_BYTES)
    texts = [parsed.text[page.char_start : page.char_end] for page in parsed.pages]
    assert texts[:2] == ["Name: Pump\nNote: a b", "Name: Pump 0\nNote: x"]
    assert [page.number for page in parsed.pages] == [2, *range(4, 104)]


CELL = st.text(st.sampled_from('ab 1,;|\t"\n.'), max_size=5)


@given(st.lists(st.lists(CELL, min_size=1, max_size=4), max_size=12), st.sampled_from(",;\t|"))
def test_no_cell_is_lost(table, separator):
    target = StringIO()
    csv.writer(target, delimiter=separator).writerows(table)
    text = parse_delimited(f"sep={separator}\n{target.getvalue()}".encode(), AMPLE_BYTES).text
    for cell in (cell for row in table for cell in row):
        assert " ".join(cell.split()) in text.replace("\\|", "|")


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (r'1,"a \"b\" c"', '| 1 | a "b" c |'),
        (r'1,"a \"b\", c"', '| 1 | a "b", c |'),
        (r'"\"a\"",2', '| "a" | 2 |'),
        (r'"C:\dir\",2', r"| C:\dir\ | 2 |"),  # The file is correct as it is.
        (r'"C:\dir\\","\"a\""', r'| C:\dir\\ | "a" |'),
        (r"1,5\" pipe", r"| 1 | 5\" pipe |"),
    ],
)
def test_quotation_marks_after_a_backslash_are_part_of_a_cell(line, cells):
    parsed = parse_delimited(f"p,q\n{line}\n".encode(), AMPLE_BYTES)
    assert parsed.text == f"| p | q |\n| --- | --- |\n{cells}"


def test_separators_in_a_quoted_name_are_not_used_to_detect_the_separator():
    parsed = parse_delimited(b'"a;b;c",d\n1,2', AMPLE_BYTES)
    assert parsed.text == "| a;b;c | d |\n| --- | --- |\n| 1 | 2 |"


def test_tab_separated_values_are_separated_by_tabs():
    parsed = parse_tabbed(b"Last, first\tAge\nGlas, Ada\t3\n", AMPLE_BYTES)
    assert parsed.text == "| Last, first | Age |\n| --- | --- |\n| Glas, Ada | 3 |"


@pytest.mark.parametrize("parse", [parse_tabbed, parse_delimited])
@pytest.mark.parametrize(
    ("sizes", "cells"),
    [
        (('"5 inch', "3 mm"), ('"5 inch', "3 mm")),
        (('"5" pipe', '3"'), ('"5" pipe', '3"')),
        (('5"', '"3" of 5"'), ('5"', '"3" of 5"')),
        (('"5\t""6""\n7"', "3"), ('5 "6" 7', "3")),
    ],
    ids=["never closed", "closed within a cell", "at both ends", "balanced"],
)
def test_unbalanced_quotation_marks_are_text_in_tab_separated_values(parse, sizes, cells):
    text = f"Name\tSize\nPipe\t{sizes[0]}\nBolt\t{sizes[1]}\n"
    header = "| Name | Size |\n| --- | --- |"
    table = f"{header}\n| Pipe | {cells[0]} |\n| Bolt | {cells[1]} |"
    assert parse(text.encode(), AMPLE_BYTES).text == table


def test_many_rows_become_records_that_name_their_columns():
    content = b"Name,Price\n" + b"Pump,1.5\n" * 200
    blocks = parse_delimited(content, AMPLE_BYTES).text.split("\n\n")
    assert blocks == ["Name: Pump\nPrice: 1.5"] * 200


def test_records_may_not_exceed_the_limit():
    with pytest.raises(TooLarge, match="more than 1000 bytes"):
        parse_delimited(b"Name,Price\n" + b"Pump,1.5\n" * 200, 1000)


@pytest.mark.parametrize(
    "content", [b'"', b'a,"b', b"a,b\n" + b'"x' * 500, b",,,\n", b"x" * 200_000]
)
def test_malformed_files_are_read_without_an_error(content):
    parse_delimited(content, AMPLE_BYTES)
