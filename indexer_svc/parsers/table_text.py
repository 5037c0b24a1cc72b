"""Turns tables into text. All functions are pure.

A chunk may contain some rows of a long table without the header, and must still be understood. So
only a table that fits into a leaf becomes a Markdown table. Each row of a longer table becomes a
record: a list of the cells of the row, each after the name of its column:

    Name: Pump
    Price: 12.5

A header of several rows gives each column one name, `2023 Revenue`. A record that is too long for
a leaf is divided, and each part begins with the first cell of the row.

No cell is left out. The cells of a row stay together, except in a record that is divided.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from indexer_svc.parsers.table_header import column_names, count_header_rows, count_titles

# A table with at most this many characters becomes a Markdown table. A leaf of 256 tokens has about
# this many characters.
MAX_TABLE_CHARS = 1_000
# A record is divided after this many characters. A leaf has fewer characters where they are digits:
# 256 tokens of names and numbers are 600 to 800 characters.
MAX_RECORD_CHARS = 600

# A cell of a Markdown table needs at least this many characters. This minimum is used to recognise
# a large table before its text is built.
_MIN_CELL_CHARS = 3
# The first cell of a row is repeated in each part of a divided record up to this length.
_MAX_KEY_CHARS = 200
_SEPARATOR = " | "

Row = Sequence[str]


class TableBlock(NamedTuple):
    """A part of a table's text.

    `row_number` is the number of the row with which the block begins, or 0 if the rows have no
    numbers. A block that continues the block before it begins on the next line. Any other block
    is separated by a blank line.
    """

    text: str
    row_number: int = 0
    is_continuation: bool = False


class _NumberedRow(NamedTuple):
    """The cells of a row, cleaned, and the row's number, or 0."""

    cells: list[str]
    number: int


def table_blocks(
    rows: Sequence[Row],
    *,
    header_rows: int | None = None,
    has_row_headers: bool = False,
    row_numbers: Sequence[int] | None = None,
) -> Iterator[TableBlock]:
    """Yields a table as blocks of text; nothing if the table is empty.

    The text of a cell is put on one line. Empty rows and columns are left out. If a single column
    remains, each row becomes a separate block. A caller that knows that a cell spans several rows
    must repeat its text in each of them. The text of a cell that spans several columns should be in
    the first of them only.

    The first `header_rows` rows are the header. If it is None, `table_header` decides how many rows
    at the top are titles of the table and how many are the header; each title becomes a separate
    block. Rows that repeat the header are left out. With `has_row_headers`, the first cell of a row
    names the row. This matters for a table without a header: its rows are written as
    `Weight: 5 kg`.

    `row_numbers` has the number of each row. Then a block begins at each row, and has its number.
    A row of the header begins no block, unless the header is written as a row.
    """
    numbers = row_numbers if row_numbers is not None else [0] * len(rows)
    cleaned = [
        _NumberedRow([" ".join(cell.split()) for cell in row], number)
        for row, number in zip(rows, numbers, strict=True)
    ]
    if header_rows is not None:  # Empty rows do not count from here on.
        header_rows = sum(any(row.cells) for row in cleaned[:header_rows])
    cleaned = _without_empty(cleaned)
    width = max((len(row.cells) for row in cleaned), default=0)
    titles = _count_title_rows(cleaned, width, header_rows)
    for row in cleaned[:titles]:
        yield TableBlock(_line(row.cells), row.number)
    if titles < len(cleaned):
        if header_rows is None:
            header_rows = count_header_rows([row.cells for row in cleaned[titles:]])
        else:
            header_rows -= titles
        yield from _body(cleaned[titles:], width, max(0, header_rows), has_row_headers)


def _without_empty(rows: list[_NumberedRow]) -> list[_NumberedRow]:
    """Returns the table without its empty rows and columns. Rows may have different lengths."""
    filled = [row for row in rows if any(row.cells)]
    columns = sorted({at for row in filled for at, cell in enumerate(row.cells) if cell})
    return [
        _NumberedRow([cells[at] for at in columns[: bisect_left(columns, len(cells))]], number)
        for cells, number in filled
    ]


def _count_title_rows(rows: Sequence[_NumberedRow], width: int, header_rows: int | None) -> int:
    """Returns how many rows at the top become separate blocks.

    In a header that the caller knows, only a first cell alone above further rows of the header is
    a title.
    """
    if width == 1:
        return len(rows)
    if header_rows is None:
        return count_titles([row.cells for row in rows])
    titles = 0
    while titles < header_rows - 1 and not any(rows[titles].cells[1:]):
        titles += 1
    return titles


def _body(
    rows: Sequence[_NumberedRow], width: int, header_rows: int, has_row_headers: bool
) -> Iterator[TableBlock]:
    """Yields the blocks of a table after its titles.

    They are the lines of one Markdown table, one record for each row, or one line for each row if
    there is no header.
    """
    header, body = [row.cells for row in rows[:header_rows]], rows[header_rows:]
    names = column_names(header, width) if header else []
    if header:
        rows = [_NumberedRow(names, rows[0].number), *body]
    lines = _markdown_lines(rows, width)
    if lines is not None:
        yield from _as_blocks(lines)
    elif header and body:
        repeated = set(map(tuple, header))
        yield from _records(names, [row for row in body if tuple(row.cells) not in repeated])
    else:
        for row in rows:
            text = _row_text(row.cells) if has_row_headers else _line(row.cells)
            yield TableBlock(text, row.number)


def _markdown_lines(rows: Sequence[_NumberedRow], width: int) -> list[tuple[str, int]] | None:
    """Returns the lines of a Markdown table, each with the number of its row.

    Returns None if the table has more than MAX_TABLE_CHARS characters. Markdown has no tables
    without a header, so the first row always is above the rule.
    """
    if _MIN_CELL_CHARS * width * len(rows) > MAX_TABLE_CHARS:
        return None
    lines = [(_markdown_line(row.cells, width), row.number) for row in rows]
    first, number = lines[0]
    lines[0] = f"{first}\n|" + " --- |" * width, number
    return lines if sum(len(line) + 1 for line, _ in lines) - 1 <= MAX_TABLE_CHARS else None


def _markdown_line(row: Row, width: int) -> str:
    cells = [*row, *[""] * (width - len(row))]
    return "|" + "|".join(f" {_escape(cell)} " for cell in cells) + "|"


def _as_blocks(lines: Sequence[tuple[str, int]]) -> Iterator[TableBlock]:
    """Yields lines as one block, or as one block for each line if the rows have numbers."""
    if not lines[0][1]:
        yield TableBlock("\n".join(line for line, _ in lines))
        return
    for at, (line, number) in enumerate(lines):
        yield TableBlock(line, number, is_continuation=at > 0)


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def _line(row: Row) -> str:
    return _SEPARATOR.join(filter(None, row))


def _row_text(row: Row) -> str:
    """Returns a row whose first cell names the row: `Weight: 5 kg`."""
    values = _line(row[1:])
    return f"{row[0]}: {values}" if row[0] and values else row[0] or values


def _records(names: Sequence[str], rows: Sequence[_NumberedRow]) -> Iterator[TableBlock]:
    """Yields the records of rows. The names of columns without any value come first, as a line."""
    with_values = {at for row in rows for at, cell in enumerate(row.cells) if cell}
    if unused := _line([name for at, name in enumerate(names) if at not in with_values]):
        yield TableBlock(unused, rows[0].number if rows else 0)
    for row in rows:
        for text in _record(names, row.cells):
            yield TableBlock(text, row.number)


def _record(names: Sequence[str], row: Row) -> Iterator[str]:
    """Yields a row as a record: each filled cell after the name of its column.

    A record of more than MAX_RECORD_CHARS is divided between its lines. The first line is repeated
    in each part, if it is not longer than _MAX_KEY_CHARS. `names` has at least as many items as
    `row`.
    """
    key, *lines = (
        f"{name}: {cell}" if name else cell for name, cell in zip(names, row, strict=False) if cell
    )
    repeated = [key] if len(key) <= _MAX_KEY_CHARS else []
    part, chars, count = [key], len(key), 0
    for line in lines:
        if count and chars + len(line) >= MAX_RECORD_CHARS:
            yield "\n".join(part)
            part, chars, count = [*repeated], sum(map(len, repeated)), 0
        part.append(line)
        chars += len(line) + 1
        count += 1
    yield "\n".join(part)
