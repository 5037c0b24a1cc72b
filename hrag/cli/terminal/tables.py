"""Tables: with aligned columns on a terminal, with tabs between the cells in a pipe."""

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
    """What happens to a cell that is wider than its column."""

    NEVER = "the column is as wide as its widest cell"
    CUT_END = "the cell's end is left out"
    CUT_START = "the cell's start is left out"
    FOLD = "the cell goes on in the next line"


class Column(NamedTuple):
    """A column of a table; numbers never need to fit, and are aligned right."""

    name: str
    fit: Fit = Fit.FOLD


def show_table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[object]]
) -> None:
    """Prints rows of texts and whole numbers.

    A terminal gets a table that fits, without columns that are empty. A pipe gets one line a
    row, with whole values; tabs and ends of lines inside a cell become blanks.
    """
    if console.is_terminal:
        shown = [[_shown(cell) for cell in row] for row in rows]
        if shown:
            console.print(_table(columns, shown, console))
        return
    typer.echo("\t".join(column.name for column in columns))
    for row in rows:
        typer.echo("\t".join(_one_line(str(cell)) for cell in row))


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]], console: Console) -> Table:
    filled = [at for at, _ in enumerate(columns) if any(row[at] for row in rows)]
    shown = [columns[at] for at in filled]
    cells = [[row[at] for at in filled] for row in rows]
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
        table.add_row(*map(_fitted, shown, row, widths))
    return table


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int) -> list[int]:
    """The width of each column; what may be cut gives way first, then what may be folded."""
    texts = [[column.name, *(row[at] for row in rows)] for at, column in enumerate(columns)]
    widths = [max(map(cell_len, each)) for each in texts]
    excess = sum(widths) + _GAP * len(widths) - available
    for fits in ((Fit.CUT_START, Fit.CUT_END), (Fit.FOLD,)):
        elastic = [at for at, column in enumerate(columns) if column.fit in fits]
        while excess > 0 and elastic:
            widest = max(elastic, key=widths.__getitem__)
            if widths[widest] <= _MIN_WIDTH:
                break
            widths[widest] -= 1
            excess -= 1
    return widths


def _fitted(column: Column, text: str, width: int) -> Text:
    if cell_len(text) > width and column.fit is Fit.CUT_START:
        while cell_len(text) >= width:
            text = text[1:]
        text = f"{_ELLIPSIS}{text}"
    cell = Text(text)
    if column.fit is Fit.CUT_END:
        cell.truncate(width, overflow="ellipsis")
    return cell


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else _one_line(str(value))


def _one_line(text: str) -> str:
    return " ".join(printable(text).replace("\t", " ").splitlines())
