"""Finds the tables in a text that was read from a file.

A short table is a Markdown table. A long one is a sequence of records, one for each row, with the
name of a column before each cell (`indexer_svc/parsers/table_text.py`). In both forms a row becomes
the pairs of its filled cells: the name of the column and the text of the cell.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from indexer_svc.parsers.table_text import MAX_RECORD_CHARS

Row = tuple[tuple[str, str], ...]

_CELL_END = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\|(?: *:?-+:? *\|)+")
_NAMED_CELL = re.compile(r"(?P<name>[^:\n]{1,80}): (?P<cell>.*)")
_FENCE = re.compile(r"`{3,}")
_BLANK_LINES = re.compile(r"\n\s*\n")


def rows_in(text: str) -> list[Row]:
    """Returns the rows of all tables of a text, without their headers."""
    rows: list[Row] = []
    lengths: list[int] = []
    for block in _BLANK_LINES.split(_without_code(text)):
        lines = block.strip().splitlines()
        if _is_markdown_table(lines):
            markdown_rows = list(_markdown_rows(lines))
            rows += markdown_rows
            lengths += [0] * len(markdown_rows)
        elif record := _record(lines):
            if rows and _continues(rows[-1], record, lengths[-1] + len(block)):
                rows[-1] += record[1:]
                lengths[-1] += len(block)
            else:
                rows.append(record)
                lengths.append(len(block))
    return rows


def table_ranges(text: str) -> Iterator[tuple[int, int]]:
    """Yields the ranges of the blocks of a text that are tables or records."""
    start = 0
    for end in [*(match.start() for match in _BLANK_LINES.finditer(text)), len(text)]:
        lines = text[start:end].strip().splitlines()
        if _is_markdown_table(lines) or _record(lines):
            yield start, end
        start = end


def comparable(text: str) -> str:
    """Returns the text of a cell in the form in which cells are compared."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _without_code(text: str) -> str:
    """Returns the text without its fenced code."""
    lines, fence = [], ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif match:
            fence = match[0]
        else:
            lines.append(line)
    return "\n".join(lines)


def _is_markdown_table(lines: Sequence[str]) -> bool:
    return len(lines) > 1 and bool(_RULE.fullmatch(lines[1].strip()))


def _markdown_rows(lines: Sequence[str]) -> Iterator[Row]:
    names = _cells(lines[0])
    for line in lines[2:]:
        pairs = zip(names, _cells(line), strict=False)
        yield tuple((name, cell) for name, cell in pairs if cell)


def _cells(line: str) -> list[str]:
    parts = _CELL_END.split(line.strip())
    return [comparable(part.replace("\\|", "|")) for part in parts[1:-1]]


def _record(lines: Sequence[str]) -> Row:
    """Returns the cells of a record; an empty row if the lines are no record.

    A record has at least two lines, because a single line `Name: text` is also a sentence.
    """
    matches = [_NAMED_CELL.fullmatch(line) for line in lines]
    if len(matches) < 2 or not all(matches):
        return ()
    return tuple(
        (comparable(match["name"]), comparable(match["cell"])) for match in matches if match
    )


def _continues(row: Row, record: Row, chars: int) -> bool:
    """Returns True if a record is the next part of a row that was divided because of its length."""
    return row[0] == record[0] and chars >= MAX_RECORD_CHARS
