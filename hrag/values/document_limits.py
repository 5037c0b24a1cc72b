"""The limits of what a document may contain, apart from its size.

A small file may declare much more than its own size, so its contents are counted while it is read.
The error names the limit, and a retriever reports all of them (`Limits`).
"""

from types import MappingProxyType

MAX_PAGES = 100_000  # A document has at most this many pages.
# The tables of a document have at most this many cells together. A small file can declare more, by
# spans and repeated rows.
MAX_TABLE_CELLS = 1_000_000
# The parser of HTML compares each attribute of an element with all others, and visits all options
# of a list for each of them. Within these limits this takes a quarter of a second.
MAX_ELEMENT_ATTRIBUTES = MAX_FORM_OPTIONS = 10_000
# Each element of an XML text takes some hundred bytes of memory. This many elements and attributes
# take half of what a parser may have.
MAX_XML_NODES = 500_000
MAX_DATA_DEPTH = 100  # Data of programs is seldom nested deeper than 20 levels.
# Groups of RTF may be nested this deep. The state of each open group takes memory.
MAX_RTF_DEPTH = 10_000
MAX_ARCHIVE_PARTS = 100_000
# The maximum size, in bytes, of the unpacked markup of an archive and of the other parts that are
# read. Pictures, sounds and films are never read, so they are not counted.
MAX_ARCHIVE_BYTES = 256 << 20
# The maximum size, in bytes, of parts that are read again, counted each time. Office files refer to
# some small parts from several places.
MAX_REPEATED_BYTES = 64 << 20
# A sheet of A3 has this many pixels at 600 dots per inch. With three bytes per pixel, a decoded
# picture takes 200 MiB.
MAX_PICTURE_PIXELS = 70_000_000
# A text may have at most MAX_RUN_CHARS characters without white space in a row, and at most
# MAX_WHITE_SPACE_CHARS characters of white space in a row. The reason is that the tokenizer
# processes such a run as a whole, in a time that grows faster than the length of the run. It fails
# on about 1,000,000 characters of white space in a row. MAX_WHITE_SPACE_CHARS is large enough for
# the line breaks between MAX_PAGES empty pages.
MAX_RUN_CHARS = 1_000_000
MAX_WHITE_SPACE_CHARS = 250_000

DOCUMENT_LIMITS = MappingProxyType(
    {
        "document_pages": MAX_PAGES,
        "table_cells": MAX_TABLE_CELLS,
        "element_attributes": MAX_ELEMENT_ATTRIBUTES,
        "form_options": MAX_FORM_OPTIONS,
        "xml_nodes": MAX_XML_NODES,
        "data_depth": MAX_DATA_DEPTH,
        "rtf_depth": MAX_RTF_DEPTH,
        "archive_parts": MAX_ARCHIVE_PARTS,
        "archive_bytes": MAX_ARCHIVE_BYTES,
        "repeated_bytes": MAX_REPEATED_BYTES,
        "picture_pixels": MAX_PICTURE_PIXELS,
        "run_chars": MAX_RUN_CHARS,
        "white_space_chars": MAX_WHITE_SPACE_CHARS,
    }
)
"""These limits by their names, which are fields of `Limits` too."""

LIMIT_NAMES = (
    *DOCUMENT_LIMITS,
    *("document_bytes", "document_leaves", "parser_time", "parser_memory"),
)
"""The names of all limits that an error about a document may name."""
