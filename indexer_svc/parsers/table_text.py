"""Turns tables into text. All functions are pure.

A chunk may contain some rows of a long table without the header, and must still be understood. So
only a table that fits into a leaf becomes a Markdown table. Each row of a longer table becomes a
record: a list of the cells of the row, each after the name of its column:

    Name: Pump
    Price: 12.5
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

# A table with at most this many characters becomes a Markdown table. A leaf of 256 tokens has about
# this many characters.
MAX_TABLE_CHARS = 1_000

# A cell of a Markdown table needs at least this many characters. This minimum is used to recognise
# a large table before its text is built.
_MIN_CELL_CHARS = 3
_NUMBER = re.compile(r"[-+]?[.,:/%\s]*\d[\d.,:/%\s]*")
_SEPARATOR = " | "

Row = Sequence[str]


def table_blocks(rows: Sequence[Row], *, has_header: bool = False) -> Iterator[str]:
    """Yields a table as blocks of text; nothing if the table is empty.

    The text of a cell is put on one line. Empty rows and columns are left out. If a single column
    remains, each row becomes a separate block.

    With `has_header`, the first row is the header. Otherwise the rows at the top with a single
    filled cell are titles of the table, and each title becomes a separate block. The first row
    after the titles is the header in two cases:

    * All its cells are filled, different from each other, and no numbers.
    * Only its first cell is empty, and its other cells are different from each other.
    """
    cleaned = _without_empty([[" ".join(cell.split()) for cell in row] for row in rows])
    width = max(map(len, cleaned), default=0)
    title_count = 0 if has_header else _count_title_rows(cleaned)
    if width == 1:
        title_count = len(cleaned)
    for row in cleaned[:title_count]:
        yield next(filter(None, row))
    if title_count < len(cleaned):
        yield from _body(cleaned[title_count:], width, has_header=has_header)


def _without_empty(rows: list[list[str]]) -> list[list[str]]:
    """Returns the table without its empty rows and columns. Rows may have different lengths."""
    filled = [row for row in rows if any(row)]
    columns = sorted({column for row in filled for column, cell in enumerate(row) if cell})
    return [[row[column] for column in columns[: bisect_left(columns, len(row))]] for row in filled]


def _count_title_rows(rows: list[list[str]]) -> int:
    """Returns the number of rows at the top that are titles of the table.

    A title is a row with a single filled cell.
    """
    return next((at for at, row in enumerate(rows) if sum(map(bool, row)) > 1), len(rows))


def _body(rows: list[list[str]], width: int, *, has_header: bool) -> Iterator[str]:
    """Returns the blocks of text for the rows of a table, without its titles.

    A small table is one block, a Markdown table. A larger table has one block for each row: a
    record if the table has a header, else a line.
    """
    if _MIN_CELL_CHARS * width * len(rows) <= MAX_TABLE_CHARS:
        table = _markdown_table([_pad(row, width) for row in rows])
        if len(table) <= MAX_TABLE_CHARS:
            return iter([table])
    header = _pad(rows[0], width)
    if len(rows) > 1 and (has_header or _looks_like_header(header)):
        return (_record(header, row) for row in rows[1:])
    return (_SEPARATOR.join(filter(None, row)) for row in rows)


def _pad(row: list[str], width: int) -> list[str]:
    return row + [""] * (width - len(row))


def _markdown_table(rows: list[list[str]]) -> str:
    lines = ["|" + "|".join(f" {_escape(cell)} " for cell in row) + "|" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def _looks_like_header(row: list[str]) -> bool:
    names = row if row[0] else row[1:]
    are_names = all(names) and len(set(names)) == len(names)
    return are_names and (not row[0] or not any(map(_NUMBER.fullmatch, names)))


def _record(header: list[str], row: list[str]) -> str:
    """Returns a row as lines of the form `name: cell`, one line for each filled cell.

    The name of a cell is the cell of `header` in the same column. `header` has at least as many
    cells as `row`.
    """
    return "\n".join(
        f"{name}: {cell}" if name else cell for name, cell in zip(header, row, strict=False) if cell
    )
