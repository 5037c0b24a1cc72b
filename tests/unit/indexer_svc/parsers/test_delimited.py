"""A file of separated values becomes a table or records."""

import pytest

from hrag.errors import TooLarge
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
def test_the_separator_is_detected_in_the_first_line(text):
    parsed = parse_delimited(text.encode(), AMPLE_BYTES)
    assert (parsed.text, parsed.headings, parsed.title) == (TABLE, (), "")


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
