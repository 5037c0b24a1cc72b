"""Parses files of separated values (CSV, RFC 4180) into tables, whose rows are pages.

In a file of tab-separated values, the separator is the tab. In other files it is the comma, the
semicolon, the tab or the vertical bar. A first line `sep=;`, as Excel writes it, names the
separator and is not part of the text. Otherwise each separator is tried on the first lines, and the
one with the highest score is used. The score is the one of van den Burg, Nazábal and Sutton,
"Wrangling messy CSV files by detecting row and type patterns" (2019): it is high if most rows have
the same large number of cells, and if most cells are numbers or words, without other separators.
So lines above the table do not matter, and in `pump;3,5;Oslo` the comma is part of a number.

Lines above the table and lines between tables are read as `table_runs` describes.

A cell in quotation marks may contain separators and line ends. If the quotation marks are not
balanced, all quotation marks are ordinary characters. If a single one began a cell, the rest of the
file would be part of this cell. In tab-separated values they are ordinary characters also if text
follows a closing mark, because the standard of this format (IANA, text/tab-separated-values) has no
quoting, and `"` often means inches. Some programs write a quotation mark inside a cell as `\\"`. It
is read in this way if the file is correct then, and is not correct otherwise.
"""

import csv
import re
import sys
from collections import Counter, deque
from collections.abc import Iterator
from io import StringIO
from itertools import islice

from hrag.values.errors import UnreadableDocument
from hrag.values.read_report import PageUnit
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.table_runs import row_runs
from indexer_svc.parsers.text_lines import utf8_text
from indexer_svc.parsers.text_writer import TextWriter

_TAB = "\t"
_SEPARATORS = f",;{_TAB}|"
# The separator is detected from this many characters and rows: enough for a stable majority also
# if 20 lines stand above the table.
_SAMPLE_CHARS = 1 << 16
_SAMPLE_ROWS = 200
_SEPARATOR_LINE = re.compile(r'\s*"?sep=([^\w\s"]|\t)"?[ \t]*(?:\r\n?|\n|\Z)', re.IGNORECASE)
_NUMBER = re.compile(r"[-+(~<>\s$€£¥]*\d[\d.,:'/%\s)eE+-]*[€£¥]?")
_MAX_NUMBER_CHARS = 40
# A quotation mark after a backslash that is not itself escaped.
_ESCAPED_MARK = re.compile(r'(?<!\\)((?:\\\\)*)\\"')
# Appended to the file as a last row, this character shows whether all quotation marks were closed.
_END_MARK = "\ue000"

# By default, Python's module csv limits the size of a cell. Its limit is set so high that it has no
# effect, because the size of the document is limited already.
csv.field_size_limit(sys.maxsize)


def parse_delimited(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the rows of a file in UTF-8 as tables, whose rows are pages.

    The number of a page is the number of its first row in the file, where empty lines count. The
    result has no title. Raises UnreadableDocument or TooLarge.
    """
    return _parse(content, "", max_text_bytes)


def parse_tabbed(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the rows of tab-separated values as tables, like `parse_delimited`."""
    return _parse(content, _TAB, max_text_bytes)


def _parse(content: bytes, separator: str, max_text_bytes: int) -> ParsedFile:
    """Parses a file whose separator is `separator`, or is detected if this is empty."""
    text = utf8_text(content)
    skipped_rows = 0
    if match := _SEPARATOR_LINE.match(text):
        separator, text, skipped_rows = match[1], text[match.end() :], 1
    writer = TextWriter(max_text_bytes)
    try:
        separator = separator or _detect_separator(text)
        for run in row_runs(_rows(text, separator)):
            numbers = [number + skipped_rows for number in run.numbers]
            writer.table(run.rows, row_numbers=numbers)
    except csv.Error as error:
        raise UnreadableDocument(f"content is not a table: {error}", field="content") from None
    return writer.parsed(page_unit=PageUnit.ROW)


def _detect_separator(text: str) -> str:
    sample = text[:_SAMPLE_CHARS]
    if len(text) > _SAMPLE_CHARS:
        sample = sample[: sample.rfind("\n") + 1] or sample
    return max(_SEPARATORS, key=lambda separator: _score(sample, separator))


def _score(sample: str, separator: str) -> float:
    """Returns how well a separator divides the lines of a sample; 0 if it does not divide them."""
    if separator not in sample:
        return 0.0
    rows = list(islice(filter(None, _rows(sample, separator)), _SAMPLE_ROWS))
    counts = Counter(map(len, rows))  # How many rows have each number of cells.
    shape = sum(count * (1 - 1 / cells) for cells, count in counts.items()) / len(counts)
    others = _SEPARATORS.replace(separator, "")
    cells = [cell for row in rows for cell in row]
    return shape * sum(_is_known(cell, others) for cell in cells) / len(cells)


def _is_known(cell: str, other_separators: str) -> bool:
    """Returns True if a cell is a number or contains none of `other_separators`."""
    if not any(separator in cell for separator in other_separators):
        return True
    return len(cell) <= _MAX_NUMBER_CHARS and bool(_NUMBER.fullmatch(cell))


def _rows(text: str, separator: str) -> Iterator[list[str]]:
    if '\\"' in text and not _closes_quotes(text, separator, is_strict=True):
        unescaped = _ESCAPED_MARK.sub(r'\1""', text)
        if _closes_quotes(unescaped, separator, is_strict=True):
            text = unescaped
    if _closes_quotes(text, separator, is_strict=separator == _TAB):
        return csv.reader(_lines(text), delimiter=separator)
    return csv.reader(_lines(text), delimiter=separator, quoting=csv.QUOTE_NONE)


def _closes_quotes(text: str, separator: str, *, is_strict: bool) -> bool:
    """Returns True if the quotation marks in the text enclose cells.

    With `is_strict`, no text may follow a closing mark.
    """
    if '"' not in text:
        return True
    lines = _lines(f"{text}\n{_END_MARK}")
    try:
        last_rows = deque(csv.reader(lines, delimiter=separator, strict=is_strict), 1)
    except csv.Error:
        return False
    return last_rows.pop() == [_END_MARK]


def _lines(text: str) -> StringIO:
    """Returns a reader of the lines of `text`, which end only at CR, LF or CRLF.

    `str.splitlines` would end a line at further characters, for example U+2028.
    """
    return StringIO(text, newline="")
