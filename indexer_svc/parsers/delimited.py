"""The text of a table in a file of separated values (CSV, RFC 4180).

The separator is the tab in a file of tab-separated values. In others it is whichever of comma,
semicolon, tab and bar the first line has most often outside of quotation marks.
"""

import csv
import re
import sys
from io import StringIO

from hrag.errors import UnreadableDocument
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter

_SEPARATORS = ",;\t|"
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
    return _parsed(content, "\t", max_text_bytes)


def _parsed(content: bytes, separator: str, max_text_bytes: int) -> ParsedFile:
    text = content.decode().removeprefix(_BYTE_ORDER_MARK)
    writer = TextWriter(max_text_bytes)
    try:
        # Only line ends end a row; `splitlines` would end it at other characters too.
        lines = StringIO(text, newline="")
        writer.table(list(csv.reader(lines, delimiter=separator)))
    except csv.Error as error:
        raise UnreadableDocument(f"content is no table: {error}", field="content") from None
    return writer.parsed()
