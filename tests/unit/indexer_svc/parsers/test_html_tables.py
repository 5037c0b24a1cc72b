"""Tables of HTML pages keep their rows, their headers and the cells that span several rows."""

import pytest
from selectolax.lexbor import LexborHTMLParser

from indexer_svc.parsers.html import parse_html
from indexer_svc.parsers.html_tables import HtmlTable, table_of
from indexer_svc.parsers.table_grid import TableSize


def text_of(body: str) -> str:
    """Returns the text of a page with this body."""
    return parse_html(f"<body>{body}".encode(), 1 << 20).text


def table(rows: str) -> HtmlTable:
    """Returns the first table of a page."""
    page = LexborHTMLParser(f"<table>{rows}</table>")
    node = page.css_first("table")
    assert node is not None
    return table_of(node, lambda _node: True, lambda cell: cell.text().strip(), TableSize(10_000))


@pytest.mark.parametrize(
    ("rows", "header_rows", "has_row_headers"),
    [
        ("<tr><td>a<td>b<tr><td>1<td>2", None, False),
        ("<tr><th>a<th>b<tr><td>1<td>2", 1, False),
        ("<tr><td><th>a<th>b<tr><th>x<td>1<td>2", 1, True),
        ("<tr><th>a<td>1<tr><th>b<td>2", 0, True),
        ("<tr><th>a<td>1<tr><td>b<td>2", 0, False),
        ("<tr><th scope=row>a<th scope=row>b<tr><td>1<td>2", 0, False),
        ("<thead><tr><td>a<td>b<tbody><tr><td>1<td>2", 1, False),
        ("<thead><tr><th rowspan=2>a<th>b<tr><th>c<tbody><tr><td>1<td>2", 2, False),
        ("<tr><th>a<th colspan=2>b<tr><th>x<th>c<th>d<tr><td>1<td>2<td>3", 2, False),
        ("<tr><th colspan=2>Title<tr><td>1<td>2", 1, False),
        ("<tr><th>a<th>b<tr><th colspan=2>Group<tr><td>1<td>2", 1, False),
        ("<tr><th>a<th>b<tr><th>c<th>d", 1, True),
        ("", None, False),
    ],
)  # fmt: skip
def test_the_page_says_which_cells_are_headers(rows, header_rows, has_row_headers):
    read = table(rows)
    assert (read.header_rows, read.has_row_headers) == (header_rows, has_row_headers)


@pytest.mark.parametrize(
    ("rows", "cells"),
    [
        ("<tr><td rowspan=2>a<td>b<tr><td>c", [["a", "b"], ["a", "c"]]),
        ("<tr><td rowspan=0>a<td>b<tr><td>c<tr><td>d", [["a", "b"], ["a", "c"], ["a", "d"]]),
        ("<tr><td colspan=2>a<td>b", [["a", "", "b"]]),
        ("<tr><td colspan=0>a<td>b", [["a", "b"]]),
        ("<tr><td rowspan=9>a<td>b<tfoot><tr><td>c<td>d", [["a", "b"], ["c", "d"]]),
        ("<tfoot><tr><td>sum<tbody><tr><td>1<thead><tr><td>h", [["h"], ["1"], ["sum"]]),
    ],
)
def test_cells_are_where_a_browser_shows_them(rows, cells):
    assert table(rows).rows == cells


def test_lines_and_blocks_of_a_cell_are_words_apart():
    body = "<table><tr><th>a<br>b<th>c<tr><td><p>d</p><p>e</p><td><div>f</div>g</table>"
    assert text_of(body) == "| a b | c |\n| --- | --- |\n| d e | f g |"


def test_a_caption_is_above_its_table():
    body = "<table><caption>Ta<b>ble</b> 1</caption><tr><th>a<th>b<tr><td>1<td>2</table>"
    assert text_of(body).startswith("Table 1\n\n| a | b |")


@pytest.mark.parametrize(
    ("rows", "is_layout"),
    [
        ("<tr><td><ul><li>one</ul><td>b", True),
        ("<tr><td><h2>one</h2><td>b", True),
        ("<tr><td><p>one<p>two<p>three<td>b", True),
        ("<tr><td><pre>one</pre><td>b", True),
        ("<tr><td><p>one</p><td>b<tr><td>c<td>d", False),
        ("<tr><th>a<th>b<tr><td><ul><li>one</ul><td>b", False),
        ("<tr><th>a<th>b<tr><td><pre>one</pre><td>b", False),
        ("<tr><th>a<th>b<tr><td><table><tr><td>one</table><td>b", True),
        ("<caption>c</caption><tr><td><h2>one</h2><td>b", False),
    ],
)
def test_a_table_that_arranges_a_page_is_no_table(rows, is_layout):
    text = text_of(f"<table>{rows}</table>")
    assert "one" in text
    assert ("|" not in text) == is_layout


def test_a_table_for_presentation_is_no_table():
    assert text_of("<table role=presentation><tr><td>a<td>b</table>") == "a\n\nb"


def test_numbers_of_lines_of_code_are_no_code():
    body = (
        "<table class=highlighttable><tr><td class=linenos><div class=linenodiv><pre>1\n2</pre>"
        "</div><td class=code><div><pre><span class=lineno>1</span>a\nb</pre></div></table>"
    )
    assert text_of(body) == "```\na\nb\n```"
