"""The text of a table in a file of separated values (CSV, RFC 4180).

The separator is the tab in a file of tab-separated values. In others it is whichever of comma,
semicolon, tab and bar the first line has most often outside of quotation marks.

Quotation marks hold a cell with separators or line ends together. Between tabs they need not: the
format itself (IANA, text/tab-separated-values) knows no quoting, and `"` often is an inch.
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

csv.field_size_limit(sys.maxsize)  # The document has a limit of its own.


def parse_delimited(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the rows of UTF-8 text as one table: see `table_blocks`. It has no title.

    Raises UnreadableDocument or TooLarge.
    """
    first_line = content[:_FIRST_LINE_BYTES].lstrip().partition(b"\n")[0].decode("utf-8", "replace")
    separator = max(_SEPARATORS, key=_QUOTED.sub("", first_line).count)
    return _parsed(content, separator, max_text_bytes)


def parse_tabbed(content: bytes, max_text_bytes: int) -> ParsedFile:
    """As `parse_delimited`, of tab-separated values."""
    return _parsed(content, _TAB, max_text_bytes)


def _parsed(content: bytes, separator: str, max_text_bytes: int) -> ParsedFile:
    text = content.decode().removeprefix(_BYTE_ORDER_MARK)
    writer = TextWriter(max_text_bytes)
    try:
        if separator == _TAB:
            rows = _tabbed_rows(text)
        else:
            rows = list(csv.reader(_lines(text), delimiter=separator))
        writer.table(rows)
    except csv.Error as error:
        raise UnreadableDocument(f"content is no table: {error}", field="content") from None
    return writer.parsed()


def _tabbed_rows(text: str) -> list[list[str]]:
    """Marks quote nothing unless all of them balance: one alone would hold all further rows."""
    try:
        return list(csv.reader(_lines(text), delimiter=_TAB, strict=True))
    except csv.Error:
        return list(csv.reader(_lines(text), delimiter=_TAB, quoting=csv.QUOTE_NONE))


def _lines(text: str) -> StringIO:
    """Lines by line ends alone; `splitlines` would end a row at other characters too."""
    return StringIO(text, newline="")
