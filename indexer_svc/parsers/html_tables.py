"""Reads the tables of HTML pages as rows of cells, with the number of their header rows."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from selectolax.lexbor import LexborNode

from indexer_svc.parsers.html_nodes import HEADINGS, LISTS, PREFORMATTED, Shows, children, walk
from indexer_svc.parsers.table_grid import TableSize, add_spanning_cells

_GROUPS = ("thead", "tbody", "tfoot")
_CELLS = ("td", "th")
_LAYOUT_ROLES = ("presentation", "none")
# In a table without header cells, a cell that contains one of these arranges a part of the page.
_LAYOUT_CONTENT = frozenset((*PREFORMATTED, *HEADINGS, *LISTS, "blockquote", "dl", "form"))
_SIGNS_OF_VALUES = ("th", "thead", "caption", "colgroup")
_SPAN = re.compile(r"[0-9]{1,4}")
_MAX_SPANNED_COLUMNS = 1_000
_MAX_HEADER_ROWS = 5
# A paragraph in a cell is a value. More of them are text.
_MAX_PARAGRAPHS = 2

CellText = Callable[[LexborNode], str]


@dataclass(frozen=True, slots=True)
class HtmlTable:
    """The rows of a table.

    `header_rows` is the number of rows at the top that name the columns, or None if the page does
    not say it. `has_row_headers` is True if the first cell of each row names the row.
    """

    rows: list[list[str]]
    header_rows: int | None
    has_row_headers: bool


@dataclass(slots=True)
class _HtmlRow:
    """A row of a table, and the number of rows from it to the end of its group."""

    cells: list[LexborNode]
    is_in_head: bool
    rows_left: int


def table_of(table: LexborNode, shows: Shows, text_of: CellText, size: TableSize) -> HtmlTable:
    """Returns the cells of a table without its captions. `text_of` returns the text of a cell.

    Counts the rows in `size`, which may raise TooLarge.
    """
    rows = _rows_of(table, shows)
    header_rows = _count_header_rows(rows)
    body = rows[header_rows or 0 :]
    has_row_headers = bool(body) and all(map(_has_row_header, body))
    return HtmlTable(list(_row_texts(rows, text_of, size)), header_rows, has_row_headers)


def layout_tables(body: LexborNode, shows: Shows) -> set[int]:
    """Returns the `mem_id` of each layout table in a page's body.

    A layout table arranges parts of a page, not values. A table is a layout table if it has a role
    that says so, if it contains a table, or if all its rows have a single cell. A table without
    header cells and caption is also one if a cell contains a heading, a list, preformatted text or
    several paragraphs.
    """
    layout: set[int] = set()
    tables: list[_TableContent] = []

    def enter(node: LexborNode) -> bool:
        tag = node.tag or ""
        if tag == "table":
            if tables:
                tables[-1].is_layout = True
            is_layout = node.attributes.get("role") in _LAYOUT_ROLES
            tables.append(_TableContent(node.mem_id, is_layout))
        elif tables:
            tables[-1].note(tag)
        return True

    def leave(node: LexborNode) -> None:
        if node.tag == "table":
            table = tables.pop()
            if table.arranges():
                layout.add(table.mem_id)

    walk(body, shows, enter, leave)
    return layout


@dataclass(slots=True)
class _TableContent:
    """The elements that have been found in a table so far."""

    mem_id: int
    is_layout: bool
    has_values: bool = False
    has_layout_content: bool = False
    cells_in_row: int = 0
    most_cells: int = 0
    paragraphs: int = 0

    def note(self, tag: str) -> None:
        """Takes account of an element inside the table."""
        if tag in _SIGNS_OF_VALUES:
            self.has_values = True
        if tag in _CELLS:
            self.cells_in_row += 1
            self.most_cells = max(self.most_cells, self.cells_in_row)
            self.paragraphs = 0
        elif tag == "tr":
            self.cells_in_row = 0
        elif tag == "p":
            self.paragraphs += 1
            self.has_layout_content |= self.paragraphs > _MAX_PARAGRAPHS
        elif tag in _LAYOUT_CONTENT:
            self.has_layout_content = True

    def arranges(self) -> bool:
        """Returns True if the table arranges parts of a page."""
        if self.is_layout or (self.most_cells == 1 and self.has_layout_content):
            return True
        return self.has_layout_content and not self.has_values


def _rows_of(table: LexborNode, shows: Shows) -> list[_HtmlRow]:
    """Returns the rows of a table in the order in which a browser shows them."""
    groups = sorted(
        children(table, _GROUPS, shows), key=lambda group: _GROUPS.index(group.tag or "")
    )
    rows = []
    for group in groups:
        nodes = list(children(group, ("tr",), shows))
        for at, node in enumerate(nodes):
            cells = list(children(node, _CELLS, shows))
            rows.append(_HtmlRow(cells, group.tag == "thead", len(nodes) - at))
    return rows


def _count_header_rows(rows: Sequence[_HtmlRow]) -> int | None:
    """Returns the number of header rows; None if the table marks no cell as a header.

    The header rows are those in `thead`, or else the rows at the top in which each filled cell is a
    `th` that is not the header of its row. If there are none, but other cells are `th`, the table
    has no header row: its rows have headers.
    """
    in_head = sum(row.is_in_head for row in rows)
    if in_head:
        return min(in_head, _MAX_HEADER_ROWS)
    count = 0
    for row in rows[:_MAX_HEADER_ROWS]:
        if not _names_columns(row, rows[0]):
            break
        count += 1
    if count == len(rows):
        # A table of header cells only says nothing about its rows.
        return min(count, 1) or None
    if count:
        return count
    has_headers = any(cell.tag == "th" for row in rows for cell in row.cells)
    return 0 if has_headers else None


def _names_columns(row: _HtmlRow, first: _HtmlRow) -> bool:
    """Returns True if the cells of a row at the top name columns.

    A single header cell over all columns is a title inside of the table, except in the first row.
    """
    headers = [cell for cell in row.cells if cell.tag == "th"]
    others = [cell for cell in row.cells if cell.tag == "td"]
    if not headers or any(cell.text().strip() for cell in others):
        return False
    if all(cell.attributes.get("scope") in ("row", "rowgroup") for cell in headers):
        return False
    return len(row.cells) > 1 or row is first


def _has_row_header(row: _HtmlRow) -> bool:
    """Returns True if a row begins with a header, or is empty."""
    return not row.cells or row.cells[0].tag == "th"


def _row_texts(rows: Sequence[_HtmlRow], text_of: CellText, size: TableSize) -> Iterator[list[str]]:
    """Yields the cells of each row.

    The text of a cell that spans several rows is repeated in each of these rows. The text of a cell
    that spans several columns is only in the first of these columns. A span ends at column
    _MAX_SPANNED_COLUMNS at the latest, and each cell after this column occupies one column.
    """
    spanning: dict[int, tuple[int, str]] = {}
    for row in rows:
        texts: list[str] = []
        for cell in row.cells:
            add_spanning_cells(texts, spanning)
            text = text_of(cell)
            rows_below = min(_span(cell, "rowspan", row.rows_left), row.rows_left) - 1
            first = len(texts)
            texts.append(text)
            end = min(first + _span(cell, "colspan", 1), _MAX_SPANNED_COLUMNS)
            texts += [""] * (end - len(texts))
            if rows_below:
                spanning |= {column: (rows_below, texts[column]) for column in range(first, end)}
        add_spanning_cells(texts, spanning)
        size.add(texts)
        yield texts


def _span(cell: LexborNode, name: str, if_zero: int) -> int:
    """Returns how many rows or columns a cell spans. Zero means all rows up to the group's end."""
    value = cell.attributes.get(name) or ""
    if not _SPAN.fullmatch(value):
        return 1
    return min(int(value) or if_zero, _MAX_SPANNED_COLUMNS)
