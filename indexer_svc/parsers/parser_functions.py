"""The formats that a parser process reads, in two families, and the function that parses each.

A confined process cannot load modules, so a process loads the modules of its family before it is
confined. The formats of the family EXTRA need the libraries of the extra `formats`. A process for
the family CORE (PDFs and text formats) does not load these libraries. To add a format, add it here,
in `hrag.values.formats`, and in `indexer_svc.extract`, which decides whether a parser process must
read it.
"""

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module

from hrag.values.formats import (
    CSV,
    DOCX,
    EPUB,
    HTML,
    MARKDOWN,
    ODP,
    ODT,
    PDF,
    PPTX,
    PYTHON,
    RST,
    TSV,
    XLSX,
)
from indexer_svc.parsers.parsed_file import ParsedFile


class FormatFamily(StrEnum):
    """A group of formats that the same parser process can read."""

    CORE = "core"
    EXTRA = "extra"


# For each format, the module of its parser and the name of the function.
_PARSERS: Mapping[FormatFamily, Mapping[str, tuple[str, str]]] = {
    FormatFamily.CORE: {
        PDF: ("pdf", "parse_pdf"),
        MARKDOWN: ("markdown", "parse_markdown"),
        RST: ("rst", "parse_rst"),
        CSV: ("delimited", "parse_delimited"),
        TSV: ("delimited", "parse_tabbed"),
        PYTHON: ("python_source", "parse_python"),
        ODT: ("opendocument", "parse_odt"),
        ODP: ("opendocument", "parse_odp"),
    },
    FormatFamily.EXTRA: {
        HTML: ("html", "parse_html"),
        DOCX: ("docx", "parse_docx"),
        PPTX: ("pptx", "parse_pptx"),
        XLSX: ("xlsx", "parse_xlsx"),
        EPUB: ("epub", "parse_epub"),
    },
}
_PACKAGE = "indexer_svc.parsers"


def format_family(mime_type: str) -> FormatFamily:
    """Returns the family to which a format belongs; CORE for an unknown format."""
    return FormatFamily.EXTRA if mime_type in _PARSERS[FormatFamily.EXTRA] else FormatFamily.CORE


def load(family: FormatFamily) -> None:
    """Loads the parser modules of a family, with their libraries."""
    for module, _function in _PARSERS[family].values():
        import_module(f"{_PACKAGE}.{module}")


def parse(content: bytes, mime_type: str, max_text_bytes: int) -> ParsedFile:
    """Parses a file in this process.

    Raises InvalidArgument if the file cannot be read, or if its text has more than
    `max_text_bytes` bytes in UTF-8. For a damaged file, any error of a library may be raised.
    """
    module, function = _PARSERS[format_family(mime_type)][mime_type]
    read = getattr(import_module(f"{_PACKAGE}.{module}"), function)
    parsed: ParsedFile = read(content, max_text_bytes)
    return parsed
