"""Reads the grid of a table of a Word document, see `table_grid`."""

from collections.abc import Callable

from indexer_svc.parsers.package import Element
from indexer_svc.parsers.table_grid import TableGrid, TableSize, without_empty_end
from indexer_svc.parsers.word.names import (
    CELL,
    ROW,
    WORD,
    number_of,
    outermost,
    switch_of,
    value_of,
)

# Word allows 63 columns. Other programs allow more, but no table of a page has more than this.
_MAX_COLUMNS = 1_000
_CONTINUED = "continue"


def read_grid(table: Element, text_of: Callable[[Element], str], size: TableSize) -> TableGrid:
    """Returns the rows of a table, and counts them in `size`, which may raise TooLarge.

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
        rows.append(without_empty_end(cells))
        size.add(rows[-1])
        is_header.append(bool(switch_of(properties, f"{WORD}tblHeader")))
    header_rows = next((at for at, is_one in enumerate(is_header) if not is_one), 0)
    return TableGrid(rows, header_rows or None)


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
