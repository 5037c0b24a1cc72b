"""The formats that parser processes read, and the function that parses each format.

A family is a set of formats that the same process reads. A process loads the modules of its family
before it gives up the right to open files, because it cannot load any module afterwards. The
formats of the family EXTRA need the libraries of the extra `formats`, and those of the family OCR
need the extra `ocr`. A process for the family CORE (PDFs and text formats) does not load these
libraries. A process for the family MAIL loads the modules of CORE and EXTRA too, because mails may
have attachments of all these formats. PDF is in two families: in OCR, pages without text are
recognised too. To add a format, add it in this module, in `hrag.values.formats`, and in
`indexer_svc.extract`, which decides whether a parser process must read the format.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib import import_module
from typing import Any

from hrag.values.formats import (
    CSV,
    DOCX,
    EML,
    EPUB,
    HTML,
    JPEG,
    JSON,
    LATEX,
    MARKDOWN,
    MSG,
    NOTEBOOK,
    ODP,
    ODS,
    ODT,
    PDF,
    PNG,
    PPTX,
    PYTHON,
    RST,
    RTF,
    SRT,
    TIFF,
    TSV,
    VTT,
    XLS,
    XLSX,
    XML,
)
from hrag.values.page_images import PageImage
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.recognised_words import RecognisedWords
from indexer_svc.parsers.recognition import PageRecogniser, Recognise


class FormatFamily(StrEnum):
    """A set of formats that the same parser process can read."""

    CORE = "core"
    EXTRA = "extra"
    OCR = "ocr"
    MAIL = "mail"


# For each format, the module with its parser and the name of the function that parses it.
_PARSERS: Mapping[FormatFamily, Mapping[str, tuple[str, str]]] = {
    FormatFamily.CORE: {
        PDF: ("pdf", "parse_pdf"),
        MARKDOWN: ("markdown", "parse_markdown"),
        RST: ("rst", "parse_rst"),
        CSV: ("delimited", "parse_delimited"),
        TSV: ("delimited", "parse_tabbed"),
        PYTHON: ("python_source", "parse_python"),
        RTF: ("rtf", "parse_rtf"),
        NOTEBOOK: ("notebook", "parse_notebook"),
        JSON: ("json_text", "parse_json"),
        XML: ("xml_text", "parse_xml"),
        SRT: ("subtitles", "parse_subtitles"),
        VTT: ("subtitles", "parse_subtitles"),
        ODT: ("opendocument", "parse_odt"),
        ODP: ("opendocument", "parse_odp"),
    },
    FormatFamily.EXTRA: {
        HTML: ("html", "parse_html"),
        DOCX: ("docx", "parse_docx"),
        PPTX: ("pptx", "parse_pptx"),
        XLSX: ("spreadsheet", "parse_xlsx"),
        XLS: ("spreadsheet", "parse_xls"),
        ODS: ("spreadsheet", "parse_ods"),
        EPUB: ("epub", "parse_epub"),
        LATEX: ("latex", "parse_latex"),
    },
    FormatFamily.MAIL: {
        EML: ("mail", "parse_mail"),
        MSG: ("outlook_message", "parse_outlook_message"),
    },
    FormatFamily.OCR: {
        PDF: ("pdf", "parse_pdf"),
        PNG: ("picture", "parse_picture"),
        JPEG: ("picture", "parse_picture"),
        TIFF: ("picture", "parse_picture"),
    },
}
# For each family whose processes also load the modules of other families, all families they load.
_LOADED = {FormatFamily.MAIL: (FormatFamily.CORE, FormatFamily.EXTRA, FormatFamily.MAIL)}
_RECOGNISER = ("rapid_ocr", "open_recogniser")
_PACKAGE = "indexer_svc.parsers"
READ_FORMATS = frozenset(mime_type for formats in _PARSERS.values() for mime_type in formats)
"""The MIME types of all formats that have a parser."""
# For each format whose pages can be shown, the module with its functions `page_image` and
# `page_words`.
_SHOWN: Mapping[str, str] = {PDF: "pdf", PNG: "picture", JPEG: "picture", TIFF: "picture"}
SHOWN_FORMATS = frozenset(_SHOWN)
"""The MIME types of all formats whose pages can be shown."""
# The parsers of these formats have a parameter `keep_boilerplate`.
_WITH_BOILERPLATE = (HTML,)


def format_family(mime_type: str) -> FormatFamily:
    """Returns the family that contains a format, or CORE if the format is PDF or unknown."""
    families = (family for family, formats in _PARSERS.items() if mime_type in formats)
    return next(families, FormatFamily.CORE)


def load(family: FormatFamily) -> Recognise | None:
    """Loads the modules that parse the formats of a family, with their libraries.

    Returns the function that recognises text if the family is OCR, and None otherwise.
    """
    for loaded in _LOADED.get(family, (family,)):
        for module, function in _PARSERS[loaded].values():
            _function(module, function)
    recognise: Recognise | None = None
    if family is FormatFamily.OCR:
        recognise = _function(*_RECOGNISER)()
    return recognise


def parse(
    content: bytes,
    mime_type: str,
    max_text_bytes: int,
    keep_boilerplate: bool = False,
    recogniser: PageRecogniser | None = None,
) -> ParsedFile:
    """Parses a file in this process.

    With `keep_boilerplate`, the parts of a web page around its content are read too. With a
    `recogniser`, text in pictures of pages is recognised.

    Raises InvalidArgument or one of its subclasses if the file cannot be read, or if its text has
    more than `max_text_bytes` bytes in UTF-8. May raise any error of a library if the file is
    damaged.
    """
    options: dict[str, Any] = {}
    if keep_boilerplate and mime_type in _WITH_BOILERPLATE:
        options["keep_boilerplate"] = True
    if recogniser is None:
        family = format_family(mime_type)
    else:
        family, options["recogniser"] = FormatFamily.OCR, recogniser
    read = _function(*_PARSERS[family][mime_type])
    parsed: ParsedFile = read(content, max_text_bytes, **options)
    return parsed


def show_page(content: bytes, mime_type: str, page: Mapping[str, Any]) -> PageImage:
    """Renders a page of a file in this process. `page` has the arguments of `pdf.page_image`.

    Its `words`, if any, are in the form of JSON. Raises InvalidArgument or one of its subclasses if
    the page cannot be shown. May raise any error of a library if the file is damaged.
    """
    sent = page.get("words")
    arguments = {**page, "words": None if sent is None else RecognisedWords.from_json(sent)}
    image: PageImage = _function(_SHOWN[mime_type], "page_image")(content, **arguments)
    return image


def page_words(
    content: bytes, mime_type: str, index: int, recogniser: PageRecogniser
) -> RecognisedWords:
    """Recognises a page of a file in this process; `index` counts the pages from 0.

    Raises the errors of `show_page`.
    """
    read = _function(_SHOWN[mime_type], "page_words")
    words: RecognisedWords = read(content, index, recogniser)
    return words


def _function(module: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    return function
