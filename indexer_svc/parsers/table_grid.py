"""The grid of a table: its rows of cells, with cells that span several rows and columns.

The readers of all formats follow the same rules. The text of a cell that spans several rows is in
each of these rows, because each row must be understood without the others. The text of a cell that
spans several columns is only in the first of them. The text of a cell is one line, also if the cell
contains a table.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hrag.values.document_limits import MAX_TABLE_CELLS
from hrag.values.errors import TooLarge

# These separate the cells and rows of a table inside a cell.
CELL_SEPARATOR, ROW_SEPARATOR = ", ", "; "
_FIELD = "content"


class TableGrid(NamedTuple):
    """The texts of a table's cells. The first `header_rows` rows are its header, if it is known."""

    rows: list[list[str]]
    header_rows: int | None


class TableSize:
    """Counts the cells and characters of all tables of a document.

    Without these limits, a small file could declare many: by cells that span rows and columns, by
    repeated rows, and by the number of its tables.
    """

    def __init__(self, max_chars: int) -> None:
        """Begins a document without tables. They may have `max_chars` characters."""
        self._max_chars = max_chars
        self._chars = self._cells = 0

    def add(self, row: Sequence[str], repeats: int = 1) -> None:
        """Counts a row that occurs `repeats` times. Raises TooLarge."""
        self._cells += repeats * len(row)
        self._chars += repeats * sum(map(len, row))
        if self._cells > MAX_TABLE_CELLS:
            raise TooLarge(
                f"content has tables of more than {MAX_TABLE_CELLS} cells; at most "
                f"{MAX_TABLE_CELLS} are allowed",
                field=_FIELD,
                limit="table_cells",
            )
        if self._chars > self._max_chars:
            raise TooLarge(
                f"content has tables of more than {self._max_chars} characters; "
                "HRAG_MAX_DOCUMENT_BYTES allows no more",
                field=_FIELD,
                limit="document_bytes",
            )


def without_empty_end(cells: list[str]) -> list[str]:
    """Returns the cells of a row without the empty ones at its end."""
    end = len(cells)
    while end and not cells[end - 1]:
        end -= 1
    return cells[:end]


def add_spanning_cells(row: list[str], spanning: dict[int, tuple[int, str]]) -> None:
    """Adds the cells of rows above that span into this row, as long as they are the next columns.

    `spanning` maps each column with such a cell to the number of rows that the cell still spans,
    and the cell's text.
    """
    while len(row) in spanning:
        column = len(row)
        rows_below, text = spanning.pop(column)
        if rows_below > 1:
            spanning[column] = rows_below - 1, text
        row.append(text)


def cell_line(text: str) -> str:
    """Returns the text of a cell on one line, without white space before separators."""
    line = " ".join(text.split())
    for separator in (CELL_SEPARATOR, ROW_SEPARATOR):
        line = line.replace(f" {separator}", separator)
    return line
