"""The formats that a parser process reads, each by one function, in two families.

A confined process can load no module, so it loads those of its family first. The libraries of
the family EXTRA are those of the extra `formats`; PDFs and plain formats do not pay for them.
A format is added here, in `hrag.values.formats`, and in `indexer_svc.extract`, which says whether
it needs a process of its own.
"""

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module

from hrag.values.formats import CSV, DOCX, EPUB, HTML, MARKDOWN, PDF, PPTX, PYTHON, RST, TSV, XLSX
from indexer_svc.parsers.parsed_file import ParsedFile


class Family(StrEnum):
    """Formats that one process reads."""

    CORE = "core"
    EXTRA = "extra"


# The module and the function that reads each format.
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
    """The family that reads a format."""
    return Family.EXTRA if mime_type in _PARSERS[Family.EXTRA] else Family.CORE


def load(family: Family) -> None:
    """Loads the modules and libraries of a family."""
    for module, _function in _PARSERS[family].values():
        import_module(f"{_PACKAGE}.{module}")


def parse(content: bytes, mime_type: str, max_text_bytes: int) -> ParsedFile:
    """Parses a file in this process.

    Raises InvalidArgument if it cannot be read or has more than `max_text_bytes` bytes of text
    in UTF-8, and whatever a library raises for a damaged file.
    """
    module, function = _PARSERS[family_of(mime_type)][mime_type]
    read = getattr(import_module(f"{_PACKAGE}.{module}"), function)
    parsed: ParsedFile = read(content, max_text_bytes)
    return parsed
