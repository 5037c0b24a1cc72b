"""The formats that a parser process reads, in three families, and the function that parses each.

A confined process cannot load modules, so a process loads the modules of its family before it is
confined. The formats of the family EXTRA need the libraries of the extra `formats`, and those of
the family OCR need the extra `ocr`. A process for the family CORE (PDFs and text formats) does not
load these libraries. PDF is in two families: in OCR, pages without text are recognised too. To add
a format, add it here, in `hrag.values.formats`, and in `indexer_svc.extract`, which decides whether
a parser process must read it.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib import import_module
from typing import Any

from hrag.values.formats import (
    CSV,
    DOCX,
    EPUB,
    HTML,
    JPEG,
    MARKDOWN,
    ODS,
    PDF,
    PNG,
    PPTX,
    PYTHON,
    RST,
    TIFF,
    TSV,
    XLS,
    XLSX,
)
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.recognition import PageRecogniser, Recognise


class FormatFamily(StrEnum):
    """A group of formats that the same parser process can read."""

    CORE = "core"
    EXTRA = "extra"
    OCR = "ocr"


# For each format, the module of its parser and the name of the function.
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
        XLSX: ("spreadsheet", "parse_xlsx"),
        XLS: ("spreadsheet", "parse_xls"),
        ODS: ("spreadsheet", "parse_ods"),
        EPUB: ("epub", "parse_epub"),
    },
    FormatFamily.OCR: {
        PDF: ("pdf", "parse_pdf"),
        PNG: ("picture", "parse_picture"),
        JPEG: ("picture", "parse_picture"),
        TIFF: ("picture", "parse_picture"),
    },
}
_RECOGNISER = ("rapid_ocr", "open_recogniser")
_PACKAGE = "indexer_svc.parsers"


def format_family(mime_type: str) -> FormatFamily:
    """Returns the family to which a format belongs; CORE for PDF and for an unknown format."""
    families = (family for family, formats in _PARSERS.items() if mime_type in formats)
    return next(families, FormatFamily.CORE)


def load(family: FormatFamily) -> Recognise | None:
    """Loads the parser modules of a family, with their libraries.

    Returns the function that recognises text if the family is OCR, and None otherwise.
    """
    for module, function in _PARSERS[family].values():
        _function(module, function)
    recognise: Recognise | None = None
    if family is FormatFamily.OCR:
        recognise = _function(*_RECOGNISER)()
    return recognise


def parse(
    content: bytes, mime_type: str, max_text_bytes: int, recogniser: PageRecogniser | None = None
) -> ParsedFile:
    """Parses a file in this process. With a `recogniser`, text in pictures of pages is recognised.

    Raises InvalidArgument if the file cannot be read, or if its text has more than
    `max_text_bytes` bytes in UTF-8. For a damaged file, any error of a library may be raised.
    """
    if recogniser is None:
        read = _function(*_PARSERS[format_family(mime_type)][mime_type])
        parsed: ParsedFile = read(content, max_text_bytes)
    else:
        read = _function(*_PARSERS[FormatFamily.OCR][mime_type])
        parsed = read(content, max_text_bytes, recogniser)
    return parsed


def _function(module: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    return function
