"""Reads the grid of a table of an OpenDocument file, see `table_grid`.

Empty rows and cells that a file declares in great numbers are left out.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from indexer_svc.parsers.odf.names import (
    CELL,
    COVERED_CELL,
    GRID,
    ROW,
    TABLE,
    number,
    shown_children,
)
from indexer_svc.parsers.package import Element
from indexer_svc.parsers.table_grid import TableGrid, TableSize, without_empty_end

# No table of a page has more columns, and no row of a document is repeated more often.
_MAX_COLUMNS = 1_000
_MAX_REPEATS = 1_000
_HEADER_ROWS = f"{TABLE}table-header-rows"


class _RowSpan(NamedTuple):
    """A cell that continues in the rows below: in how many of them, and its text."""

    rows_below: int
    text: str


def read_grid(table: Element, text_of: Callable[[Element], str], size: TableSize) -> TableGrid:
    """Returns the rows of a table, and counts them in `size`, which may raise TooLarge.

    `text_of` returns the text of a cell, and is called once for each cell that is shown, in order.
    """
    rows: list[list[str]] = []
    header_rows = 0
    above: dict[int, _RowSpan] = {}
    for row, is_header in _rows(table):
        cells = _read_row(row, above, text_of)
        repeats = number(row.get(f"{TABLE}number-rows-repeated"), 1)
        repeats = max(1, min(repeats, _MAX_REPEATS)) if cells else 1
        size.add(cells, repeats)
        rows += [cells] * repeats
        if is_header and header_rows == len(rows) - repeats:
            header_rows = len(rows)
    return TableGrid(rows, header_rows if 0 < header_rows < len(rows) else None)


def _rows(table: Element) -> Iterator[tuple[Element, bool]]:
    """Yields the rows of a table, and whether they belong to its header."""
    pending = [(child, False) for child in shown_children(table)][::-1]
    while pending:
        element, is_header = pending.pop()
        if element.tag == ROW:
            yield element, is_header
        elif element.tag != GRID:
            is_header = is_header or element.tag == _HEADER_ROWS
            pending += [(child, is_header) for child in shown_children(element)][::-1]


def _read_row(
    row: Element, above: dict[int, _RowSpan], text_of: Callable[[Element], str]
) -> list[str]:
    """Returns the texts of a row; updates the cells that continue in the rows below."""
    cells: list[str] = []
    for cell in row:
        if cell.tag not in (CELL, COVERED_CELL):
            continue
        column = len(cells)
        span = above.pop(column, None)
        if cell.tag == COVERED_CELL:
            text = "" if span is None else span.text
            if span is not None and span.rows_below > 1:
                above[column] = _RowSpan(span.rows_below - 1, text)
        else:
            text = text_of(cell)
            rows_below = number(cell.get(f"{TABLE}number-rows-spanned"), 1) - 1
            if rows_below > 0 and text:
                above[column] = _RowSpan(rows_below, text)
        repeats = number(cell.get(f"{TABLE}number-columns-repeated"), 1)
        cells += [text] * max(1, min(repeats, _MAX_COLUMNS - column))
    return without_empty_end(cells)
