"""Tables as text of which every part makes sense on its own.

A chunk holds some rows of a long table and not its header. So only a table that fits a leaf
stays a table of Markdown; the rows of a longer one become records, each with its headers:

    Name: Pump
    Price: 12.5

Pure.
"""

import re
from collections.abc import Sequence

MAX_TABLE_CHARS = 1_000  # About a leaf of 256 tokens.
MAX_COLUMNS = 1_000

_NUMBER = re.compile(r"[-+]?[\d.,:/%\s]*\d[\d.,:/%\s]*")
_SEPARATOR = " | "

Row = Sequence[str]


def table_blocks(rows: Sequence[Row], *, has_header: bool = False) -> list[str]:
    """Returns a table as blocks of text; none if it is empty.

    Cells become one line each; empty rows and columns are left out, and so are columns beyond
    MAX_COLUMNS. Rows above the header with a single cell are blocks of their own. `has_header`
    says that the first row is the header; otherwise it counts as one if it looks like one:
    its cells are filled and different, and none is a number unless the first cell is empty.
    """
    cleaned = _without_empty(
        [[" ".join(cell.split()) for cell in row[:MAX_COLUMNS]] for row in rows]
    )
    if not cleaned:
        return []
    if len(cleaned[0]) == 1:
        return [cell for (cell,) in cleaned]
    above = 0 if has_header else _rows_above(cleaned)
    titles = [next(filter(None, row)) for row in cleaned[:above]]
    return [*titles, *_body(cleaned[above:], has_header=has_header)]


def _without_empty(rows: list[list[str]]) -> list[list[str]]:
    filled = [row for row in rows if any(row)]
    width = max(map(len, filled), default=0)
    padded = [row + [""] * (width - len(row)) for row in filled]
    kept = [column for column in range(width) if any(row[column] for row in padded)]
    return [[row[column] for column in kept] for row in padded]


def _rows_above(rows: list[list[str]]) -> int:
    """How many rows at the top are titles of the table: one cell each."""
    return next((at for at, row in enumerate(rows) if sum(map(bool, row)) > 1), len(rows))


def _body(rows: list[list[str]], *, has_header: bool) -> list[str]:
    if not rows:
        return []
    table = _markdown(rows)
    if len(table) <= MAX_TABLE_CHARS:
        return [table]
    if len(rows) > 1 and (has_header or _looks_like_header(rows[0])):
        return [_record(rows[0], row) for row in rows[1:]]
    return [_SEPARATOR.join(filter(None, row)) for row in rows]


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
    return "\n".join(
        f"{name}: {cell}" if name else cell for name, cell in zip(header, row, strict=True) if cell
    )
