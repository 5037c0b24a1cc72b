"""Parses files of separated values (CSV, RFC 4180) into one table.

In a file of tab-separated values, the separator is the tab. In other files, it is the comma, the
semicolon, the tab or the vertical bar, whichever occurs most often in the first line outside of
quotation marks.

A cell in quotation marks may contain separators and line ends. In tab-separated values, a
quotation mark may be an ordinary character, because the standard of this format (IANA,
text/tab-separated-values) has no quoting, and `"` often means inches.
"""

import csv
import re
import sys
from io import StringIO

from hrag.values.errors import UnreadableDocument
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter

_TAB = "\t"
_SEPARATORS = f",;{_TAB}|"
_FIRST_LINE_BYTES = 1 << 16
_QUOTED = re.compile('"[^"]*"?')
_BYTE_ORDER_MARK = "\ufeff"

# By default, Python's module csv limits the size of a cell. Its limit is set so high that it has no
# effect, because the size of the document is limited already.
csv.field_size_limit(sys.maxsize)


def parse_delimited(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the rows of a file in UTF-8 as one table, in the text form of `table_blocks`.

    The result has no title. Raises UnreadableDocument or TooLarge.
    """
    first_line = content[:_FIRST_LINE_BYTES].lstrip().partition(b"\n")[0].decode("utf-8", "replace")
    separator = max(_SEPARATORS, key=_QUOTED.sub("", first_line).count)
    return _parse(content, separator, max_text_bytes)


def parse_tabbed(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the rows of tab-separated values as one table, like `parse_delimited`."""
    return _parse(content, _TAB, max_text_bytes)


def _parse(content: bytes, separator: str, max_text_bytes: int) -> ParsedFile:
    text = content.decode().removeprefix(_BYTE_ORDER_MARK)
    writer = TextWriter(max_text_bytes)
    try:
        if separator == _TAB:
            rows = _tabbed_rows(text)
        else:
            rows = list(csv.reader(_lines(text), delimiter=separator))
        writer.table(rows)
    except csv.Error as error:
        raise UnreadableDocument(f"content is not a table: {error}", field="content") from None
    return writer.parsed()


def _tabbed_rows(text: str) -> list[list[str]]:
    """Returns the rows of tab-separated values.

    Quotation marks enclose cells only if all quotation marks of the file are paired. Otherwise all
    quotation marks are ordinary characters. The reason is that after an unpaired quotation mark at
    the start of a cell, the whole rest of the file would be part of this cell.
    """
    try:
        return list(csv.reader(_lines(text), delimiter=_TAB, strict=True))
    except csv.Error:
        return list(csv.reader(_lines(text), delimiter=_TAB, quoting=csv.QUOTE_NONE))


def _lines(text: str) -> StringIO:
    """Returns a reader of the lines of `text`, which end only at CR, LF or CRLF.

    `str.splitlines` would end a line at further characters, for example U+2028.
    """
    return StringIO(text, newline="")
