"""The formats that a parser process reads, in two families; one function reads each format.

A confined process cannot load modules, so it first loads the modules of its family. The family
EXTRA needs the libraries of the extra `formats`. A process for PDFs and plain formats does not
load them. To add a format, add it here, in `hrag.values.formats`, and in `indexer_svc.extract`,
which decides whether a parser process must read it.
"""

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module

from hrag.values.formats import CSV, DOCX, EPUB, HTML, MARKDOWN, PDF, PPTX, PYTHON, RST, TSV, XLSX
from indexer_svc.parsers.parsed_file import ParsedFile


class Family(StrEnum):
    """The formats that one process can read."""

    CORE = "core"
    EXTRA = "extra"


# The module and the name of the function that read each format.
_PARSERS: Mapping[Family, Mapping[str, tuple[str, str]]] = {
    Family.CORE: {
        PDF: ("pdf", "parse_pdf"),
        MARKDOWN: ("markdown", "parse_markdown"),
        RST: ("rst", "parse_rst"),
        CSV: ("delimited", "parse_delimited"),
        TSV: ("delimited", "parse_tabbed"),
        PYTHON: ("python_source", "parse_python"),
    },
    Family.EXTRA: {
        HTML: ("html", "parse_html"),
        DOCX: ("docx", "parse_docx"),
        PPTX: ("pptx", "parse_pptx"),
        XLSX: ("xlsx", "parse_xlsx"),
        EPUB: ("epub", "parse_epub"),
    },
}
_PACKAGE = "indexer_svc.parsers"


def family_of(mime_type: str) -> Family:
    """Returns the family that reads a format."""
    return Family.EXTRA if mime_type in _PARSERS[Family.EXTRA] else Family.CORE


def load(family: Family) -> None:
    """Loads the modules and libraries of a family."""
    for module, _function in _PARSERS[family].values():
        import_module(f"{_PACKAGE}.{module}")


def parse(content: bytes, mime_type: str, max_text_bytes: int) -> ParsedFile:
    """Parses a file in this process.

    Raises InvalidArgument if the file cannot be read, or if its text has more than
    `max_text_bytes` bytes in UTF-8. For a damaged file, any error of a library may be raised.
    """
    module, function = _PARSERS[family_of(mime_type)][mime_type]
    read = getattr(import_module(f"{_PACKAGE}.{module}"), function)
    parsed: ParsedFile = read(content, max_text_bytes)
    return parsed
