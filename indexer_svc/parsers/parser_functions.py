"""The formats that parser processes read, and the function that parses each format.

A family is a set of formats that the same process reads. A process loads the modules of its family
before it gives up the right to open files, because it cannot load any module afterwards. The
formats of the family EXTRA need the libraries of the extra `formats`. A process for the family CORE
(PDFs and text formats) does not load these libraries. To add a format, add it in this module, in
`hrag.values.formats`, and in `indexer_svc.extract`, which decides whether a parser process must
read the format.
"""

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module

from hrag.values.formats import CSV, DOCX, EPUB, HTML, MARKDOWN, PDF, PPTX, PYTHON, RST, TSV, XLSX
from indexer_svc.parsers.parsed_file import ParsedFile


class FormatFamily(StrEnum):
    """A set of formats that the same parser process can read."""

    CORE = "core"
    EXTRA = "extra"


# For each format, the module with its parser and the name of the function that parses it.
_PARSERS: Mapping[FormatFamily, Mapping[str, tuple[str, str]]] = {
    FormatFamily.CORE: {
        PDF: ("pdf", "parse_pdf"),
        MARKDOWN: ("markdown", "parse_markdown"),
        RST: ("rst", "parse_rst"),
        CSV: ("delimited", "parse_delimited"),
        TSV: ("delimited", "parse_tabbed"),
        PYTHON: ("python_source", "parse_python"),
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
    """Returns the family that contains a format, or CORE if the format is unknown."""
    return FormatFamily.EXTRA if mime_type in _PARSERS[FormatFamily.EXTRA] else FormatFamily.CORE


def load(family: FormatFamily) -> None:
    """Loads the modules that parse the formats of a family, with their libraries."""
    for module, _function in _PARSERS[family].values():
        import_module(f"{_PACKAGE}.{module}")


def parse(content: bytes, mime_type: str, max_text_bytes: int) -> ParsedFile:
    """Parses a file in this process.

    Raises InvalidArgument or one of its subclasses if the file cannot be read, or if its text has
    more than `max_text_bytes` bytes in UTF-8. May raise any error of a library if the file is
    damaged.
    """
    module, function = _PARSERS[format_family(mime_type)][mime_type]
    read = getattr(import_module(f"{_PACKAGE}.{module}"), function)
    parsed: ParsedFile = read(content, max_text_bytes)
    return parsed
