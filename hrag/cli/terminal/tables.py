"""Prints tables: with aligned columns on a terminal, with tabs between cells in a pipe."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hrag.text.plain_text import printable

_GAP = 2
_MIN_WIDTH = 8
_ELLIPSIS = "…"


class Fit(Enum):
    """The ways to fit a cell that is wider than its column."""

    NEVER = "the column is as wide as its widest cell"
    CUT_END = "the cell's end is left out"
    CUT_START = "the cell's start is left out"
    FOLD = "the cell continues on the next line"


class Column(NamedTuple):
    """A column of a table.

    Columns of numbers have `Fit.NEVER`: they are never narrowed, and are aligned right.
    """

    name: str
    fit: Fit = Fit.FOLD


def show_table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[object]]
) -> None:
    """Prints rows of texts and whole numbers.

    On a terminal the table fits the width, and empty columns are omitted. In a pipe each row is
    one line with complete values; tabs and line ends inside a cell become blanks.
    """
    if console.is_terminal:
        texts = [[_format_cell(cell) for cell in row] for row in rows]
        if texts:
            console.print(_table(columns, texts, console))
        return
    typer.echo("\t".join(column.name for column in columns))
    for row in rows:
        typer.echo("\t".join(_one_line(str(cell)) for cell in row))


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]], console: Console) -> Table:
    filled = [index for index, _ in enumerate(columns) if any(row[index] for row in rows)]
    shown = [columns[index] for index in filled]
    cells = [[row[index] for index in filled] for row in rows]
    widths = _widths(shown, cells, console.width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="bold")
    for column, width in zip(shown, widths, strict=True):
        table.add_column(
            column.name,
            justify="right" if column.fit is Fit.NEVER else "left",
            overflow="fold",
            width=width,
        )
    for row in cells:
        table.add_row(*map(_fit_cell, shown, row, widths))
    return table


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int) -> list[int]:
    """Returns the width of each column.

    If the table is too wide, columns that may be cut are narrowed first, then columns that may
    be folded.
    """
    texts = [[column.name, *(row[index] for row in rows)] for index, column in enumerate(columns)]
    widths = [max(map(cell_len, column_texts)) for column_texts in texts]
    excess = sum(widths) + _GAP * len(widths) - available
    for fits in ((Fit.CUT_START, Fit.CUT_END), (Fit.FOLD,)):
        elastic = [index for index, column in enumerate(columns) if column.fit in fits]
        while excess > 0 and elastic:
            widest = max(elastic, key=widths.__getitem__)
            if widths[widest] <= _MIN_WIDTH:
                break
            widths[widest] -= 1
            excess -= 1
    return widths


def _fit_cell(column: Column, text: str, width: int) -> Text:
    if cell_len(text) > width and column.fit is Fit.CUT_START:
        while cell_len(text) >= width:
            text = text[1:]
        text = f"{_ELLIPSIS}{text}"
    cell = Text(text)
    if column.fit is Fit.CUT_END:
        cell.truncate(width, overflow="ellipsis")
    return cell


def _format_cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else _one_line(str(value))


def _one_line(text: str) -> str:
    return " ".join(printable(text).replace("\t", " ").splitlines())
