"""Writes the long tables of Markdown texts as records.

A leaf of the chunk tree is a part of the text, and nothing is added to it. So the rows in the
middle of a long table would have no names of columns: neither a search nor a reader would know
which number is the price. Three ways to give each leaf the names were compared. To index the
header's words with each leaf would find the row, but its text would still not say what the numbers
mean. To repeat the header within the table after every few rows works for one size of leaves only.
Records, which all other formats have too, work for leaves of any size. So a table of more than
MAX_TABLE_CHARS characters becomes records; all other text stays as it is written. The markup in
the cells stays too.

A table has the form that GitHub Flavored Markdown defines. Only tables that are not inside a list
or a quote are replaced. The parts of the text that are replaced are returned as edits.
"""

import re
from collections.abc import Iterator, Sequence

from markdown_it.rules_block import StateBlock
from markdown_it.rules_block import table as gfm_table

from indexer_svc.parsers.parsed_file import PAGE_BREAK, Edit
from indexer_svc.parsers.table_text import MAX_TABLE_CHARS, table_blocks
from indexer_svc.parsers.text_lines import LINE_END
from indexer_svc.parsers.text_writer import check_text_bytes

TABLES = "tables"
"""The key under which `table_rule` adds tables to the parser's environment.

The value is a list of pairs: the index of the first line, and the index after the last line.
"""

# The line end of a table, and the beginning of a line that is not blank.
_LINE_AFTER = re.compile(r"(?:\r\n?|\n)[ \t]*[^ \t\r\n]")
_CELL_END = re.compile(r"(?<!\\)\|")
_ESCAPED_BAR = "\\|"
_BAR_WITHOUT_ESCAPE = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"(?<!`)(`+)(?!`).{1,200}?(?<!`)\1(?!`)")
# Longer rows are not searched for code. A row that consists of backticks takes 5 ms.
_MAX_CODE_ROW_CHARS = 2_000
# The line before a table is examined up to this many characters before the table.
_MAX_BLANK_CHARS = 200


def table_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A block rule of the parser that skips tables and adds the outer ones to its environment.

    `start` is the index of the line at which a table may begin, `end` the index after the last
    line. Returns True if a table begins there. The library's own rule would make tokens for each
    cell.
    """
    if not gfm_table(state, start, end, True):
        return False
    if silent:
        return True
    ends_table = state.md.block.ruler.getRules("blockquote")
    line = start + 2
    while line < end and not (
        state.isEmpty(line)
        or state.sCount[line] < state.blkIndent
        or state.is_code_block(line)
        or any(rule(state, line, end, True) for rule in ends_table)
    ):
        line += 1
    if state.level == 0:
        state.env.setdefault(TABLES, []).append((start, line))
    state.line = line
    return True


def with_records(
    text: str, tables: Sequence[tuple[int, int]], max_text_bytes: int
) -> tuple[str, tuple[Edit, ...]]:
    """Returns a text with its long tables as records, and what was replaced.

    `tables` are the ranges of the tables in the text, in order. Each begins with a line, and may
    end with the line end of its last line. Raises TooLarge if the records of all tables have more
    than `max_text_bytes` bytes of UTF-8.
    """
    edits: list[Edit] = []
    parts: list[str] = []
    position = record_bytes = 0
    for start, line_end in tables:
        end = start + len(text[start:line_end].rstrip("\r\n"))
        records = []
        for record in _records(text[start:end]) if end - start > MAX_TABLE_CHARS else ():
            records.append(record)
            record_bytes += len(record.encode()) + len(PAGE_BREAK)
            check_text_bytes(record_bytes, max_text_bytes)
        if len(records) > 1:
            replacement = _as_paragraphs(records, text, start, end)
            parts += (text[position:start], replacement)
            edits.append(Edit(start, end, len(replacement)))
            position = end
    parts.append(text[position:])
    return "".join(parts), tuple(edits)


def _records(table: str) -> Iterator[str]:
    """Yields the records of a table; a single text if its cells have no more than MAX_TABLE_CHARS.

    The cells may have so few characters although their table has more, because many authors align
    the columns by spaces.
    """
    header, _rule, *lines = LINE_END.split(table.strip())
    names = _cells(header)
    rows = (_row(line, len(names)) for line in lines)
    for block in table_blocks([names, *rows], header_rows=1):
        yield block.text


def _row(line: str, count: int) -> list[str]:
    """Returns the cells of a row of a table with `count` columns.

    A bar inside code ends a cell too, but many authors do not know it. So if a row has too many
    cells, and the right number of them without the bars inside code, those bars are text.
    """
    cells = _cells(line)
    if len(cells) <= count or len(line) > _MAX_CODE_ROW_CHARS:
        return cells
    with_code = _cells(_CODE.sub(_escape_bars, line))
    return with_code if len(with_code) == count else cells


def _escape_bars(code: re.Match[str]) -> str:
    return _BAR_WITHOUT_ESCAPE.sub(r"\\|", code[0])


def _cells(line: str) -> list[str]:
    """Returns the cells of a row. The bars at its beginning and end are optional."""
    cells = _CELL_END.split(line.strip())
    first = int(len(cells) > 1 and not cells[0])
    last = len(cells) - int(len(cells) > 1 and not cells[-1])
    return [cell.replace(_ESCAPED_BAR, "|") for cell in cells[first:last]]


def _as_paragraphs(records: Sequence[str], text: str, start: int, end: int) -> str:
    """Returns what replaces the table at [start, end) of a text: its records as paragraphs.

    Blank lines are added where the table was next to a line of text.
    """
    lines_before = LINE_END.split(text[max(0, start - _MAX_BLANK_CHARS) : start])
    before = "\n" if len(lines_before) > 1 and lines_before[-2].strip() else ""
    after = "\n" if _LINE_AFTER.match(text, end) else ""
    return before + PAGE_BREAK.join(records) + after
