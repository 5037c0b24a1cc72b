"""Tables as text of which every part makes sense on its own.

A chunk holds some rows of a long table and not its header. So only a table that fits a leaf
stays a table of Markdown; the rows of a longer one become records, each with its headers:

    Name: Pump
    Price: 12.5

Pure.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

MAX_TABLE_CHARS = 1_000  # About a leaf of 256 tokens.

_LEAST_CELL_CHARS = 3  # Of a cell in a table of Markdown.
_NUMBER = re.compile(r"[-+]?[.,:/%\s]*\d[\d.,:/%\s]*")
_SEPARATOR = " | "

Row = Sequence[str]


def table_blocks(rows: Sequence[Row], *, has_header: bool = False) -> Iterator[str]:
    """Yields a table as blocks of text; none if it is empty.

    Cells become one line each; empty rows and columns are left out. Rows above the header with
    a single cell are blocks of their own. `has_header` says that the first row is the header;
    otherwise it counts as one if it looks like one: its cells are filled and different, and none
    is a number unless the first cell is empty.
    """
    cleaned = _without_empty([[" ".join(cell.split()) for cell in row] for row in rows])
    width = max(map(len, cleaned), default=0)
    above = 0 if has_header else _rows_above(cleaned)
    if width == 1:
        above = len(cleaned)
    for row in cleaned[:above]:
        yield next(filter(None, row))
    if above < len(cleaned):
        yield from _body(cleaned[above:], width, has_header=has_header)


def _without_empty(rows: list[list[str]]) -> list[list[str]]:
    """The cells of the columns that are not empty; a row ends where its last cell did."""
    filled = [row for row in rows if any(row)]
    kept = sorted({column for row in filled for column, cell in enumerate(row) if cell})
    return [[row[column] for column in kept[: bisect_left(kept, len(row))]] for row in filled]


def _rows_above(rows: list[list[str]]) -> int:
    """How many rows at the top are titles of the table: one cell each."""
    return next((at for at, row in enumerate(rows) if sum(map(bool, row)) > 1), len(rows))


def _body(rows: list[list[str]], width: int, *, has_header: bool) -> Iterator[str]:
    if _LEAST_CELL_CHARS * width * len(rows) <= MAX_TABLE_CHARS:
        table = _markdown([_padded(row, width) for row in rows])
        if len(table) <= MAX_TABLE_CHARS:
            return iter([table])
    header = _padded(rows[0], width)
    if len(rows) > 1 and (has_header or _looks_like_header(header)):
        return (_record(header, row) for row in rows[1:])
    return (_SEPARATOR.join(filter(None, row)) for row in rows)


def _padded(row: list[str], width: int) -> list[str]:
    return row + [""] * (width - len(row))


def _markdown(rows: list[list[str]]) -> str:
    lines = ["|" + "|".join(f" {_escaped(cell)} " for cell in row) + "|" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _looks_like_header(row: list[str]) -> bool:
    names = row if row[0] else row[1:]
    are_names = all(names) and len(set(names)) == len(names)
    return are_names and (not row[0] or not any(map(_NUMBER.fullmatch, names)))


def _record(header: list[str], row: list[str]) -> str:
    """The row's cells, each behind its name; `header` has at least as many."""
    return "\n".join(
        f"{name}: {cell}" if name else cell for name, cell in zip(header, row, strict=False) if cell
    )
