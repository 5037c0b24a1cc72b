"""Reads the grid of a table: its rows of cells, with merged cells repeated.

A cell that spans several rows is repeated in each of them. The text of a cell that spans several
columns is in the first of them. Some tables arrange parts of a page and no values; `layout_tables`
finds them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from indexer_svc.parsers.package import Element
from indexer_svc.parsers.word.names import (
    CELL,
    MATH_TEXT,
    PARAGRAPH,
    ROW,
    TABLE,
    TEXT,
    WORD,
    number_of,
    outermost,
    shown_children,
    switch_of,
    value_of,
)

# Word allows 63 columns. Other programs allow more, but no table of a page has more than this.
_MAX_COLUMNS = 1_000
_CONTINUED = "continue"


class WordTable(NamedTuple):
    """The texts of a table's cells. The first `header_rows` rows are its header, if it is known."""

    rows: list[list[str]]
    header_rows: int | None


def read_grid(table: Element, text_of: Callable[[Element], str]) -> WordTable:
    """Returns the rows of a table.

    `text_of` returns the text of a cell, and is called once for each cell that is shown, in order.
    """
    rows: list[list[str]] = []
    is_header: list[bool] = []
    # The text of the cell above each column, as far as a cell may continue it.
    above: dict[int, str] = {}
    for row in outermost(table, ROW):
        properties = row.find(f"{WORD}trPr")
        if properties is not None and _is_removed(properties):
            continue
        cells: list[str] = [""] * _columns(number_of(properties, f"{WORD}gridBefore") or 0)
        above = _read_row(row, cells, above, text_of)
        rows.append(cells)
        is_header.append(bool(switch_of(properties, f"{WORD}tblHeader")))
    header_rows = next((at for at, is_one in enumerate(is_header) if not is_one), 0)
    return WordTable(rows, header_rows or None)


def _read_row(
    row: Element, cells: list[str], above: dict[int, str], text_of: Callable[[Element], str]
) -> dict[int, str]:
    """Appends the texts of a row to `cells`; returns the texts that the next row may continue."""
    continued: dict[int, str] = {}
    for cell in outermost(row, CELL):
        properties = cell.find(f"{WORD}tcPr")
        if properties is not None and properties.find(f"{WORD}cellDel") is not None:
            continue
        column = len(cells)
        span = max(1, _columns(number_of(properties, f"{WORD}gridSpan") or 1))
        if value_of(properties, f"{WORD}hMerge") == _CONTINUED:
            cells.append("")
            continue
        merge = None if properties is None else properties.find(f"{WORD}vMerge")
        is_continued = merge is not None and merge.get(f"{WORD}val", _CONTINUED) == _CONTINUED
        text = above[column] if is_continued and column in above else text_of(cell)
        if merge is not None:
            continued[column] = text
        cells.append(text)
        cells += [""] * (min(span - 1, _MAX_COLUMNS - len(cells)))
    return continued


def _is_removed(properties: Element) -> bool:
    """Returns True for a row that is deleted or hidden."""
    return properties.find(f"{WORD}del") is not None or bool(switch_of(properties, f"{WORD}hidden"))


def _columns(count: int) -> int:
    return max(0, min(count, _MAX_COLUMNS))


@dataclass(slots=True)
class _OpenTable:
    """A table that is being examined. `heading_cells` counts the headings in the current cell."""

    table: Element
    chars: int = 0
    nested_chars: int = 0
    cells_in_row: int = 0
    max_cells: int = 0
    has_heading: bool = False
    has_section: bool = False


def layout_tables(root: Element, is_heading: Callable[[Element], bool]) -> set[Element]:
    """Returns the tables below `root` that arrange parts of a page.

    A table is one of them if each of its rows has one cell, if a cell contains a heading and text
    below it, or if most of its text is in tables inside it. `is_heading` says whether a paragraph
    is a heading.
    """
    layouts: set[Element] = set()
    open_tables: list[_OpenTable] = []
    # In this list, None means that a table ends.
    pending: list[Element | None] = [root]
    while pending:
        element = pending.pop()
        if element is None:
            closed = open_tables.pop()
            if _is_layout(closed):
                layouts.add(closed.table)
            if open_tables:
                open_tables[-1].chars += closed.chars
                open_tables[-1].nested_chars += closed.chars
            continue
        if element.tag == TABLE:
            open_tables.append(_OpenTable(element))
            pending.append(None)
        elif open_tables:
            _examine(element, open_tables[-1], is_heading)
        pending += list(shown_children(element))[::-1]
    return layouts


def _examine(element: Element, table: _OpenTable, is_heading: Callable[[Element], bool]) -> None:
    if element.tag == ROW:
        table.cells_in_row = 0
    elif element.tag == CELL:
        table.cells_in_row += 1
        table.max_cells = max(table.max_cells, table.cells_in_row)
        table.has_heading = False
    elif element.tag == PARAGRAPH:
        heading = is_heading(element)
        table.has_section |= table.has_heading and not heading
        table.has_heading |= heading
    elif element.tag in (TEXT, MATH_TEXT):
        table.chars += len(element.text or "")


def _is_layout(table: _OpenTable) -> bool:
    return table.max_cells <= 1 or table.has_section or 2 * table.nested_chars > table.chars
