"""The text of a table in a file of separated values (CSV, RFC 4180).

The separator is whichever of comma, semicolon, tab and bar the first line has most often.
"""

import csv
import sys

from hrag.errors import UnreadableDocument
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter

_SEPARATORS = ",;\t|"
_FIRST_LINE_CHARS = 1 << 16

csv.field_size_limit(sys.maxsize)  # The document has a limit of its own.


def parse_delimited(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the rows of UTF-8 text as one table: see `table_blocks`. It has no title.

    Raises UnreadableDocument or TooLarge.
    """
    text = content.decode()
    first_line = text[:_FIRST_LINE_CHARS].lstrip().partition("\n")[0]
    separator = max(_SEPARATORS, key=first_line.count)
    writer = TextWriter(max_text_bytes)
    try:
        writer.table(list(csv.reader(text.splitlines(keepends=True), delimiter=separator)))
    except csv.Error as error:
        raise UnreadableDocument(f"content is no table: {error}", field="content") from None
    return writer.parsed()
