"""Which format a document is read as: by the type that its client gives, or by its content."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec

from hrag.values.documents import Document, Page
from hrag.values.errors import InvalidArgument
from hrag.values.formats import (
    DOCX,
    EPUB,
    FORMATS,
    FORMATS_EXTRA,
    HTML,
    MARKDOWN,
    PDF,
    PLAIN_TEXT,
    PPTX,
    XLSX,
    Format,
    format_of,
)
from hrag.values.ids import quoted

Body = str | bytes | tuple[Page, ...]

_FIELD = "mime_type"
_LIBRARIES = ("mammoth", "python_calamine", "selectolax")
_PAGED = (PLAIN_TEXT, MARKDOWN)
_PDF_MAGIC = b"%PDF-"
_ZIP_MAGIC = b"PK\x03\x04"
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_EPUB_START = slice(30, 58)  # The first entry of an EPUB's archive, not compressed.
_EPUB_MAGIC = b"mimetypeapplication/epub+zip"
_MAIN_PARTS = {
    b"word/document.xml": DOCX,
    b"word/document2.xml": DOCX,  # Written by Word on the Web.
    b"ppt/presentation.xml": PPTX,
    b"xl/workbook.xml": XLSX,
}
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE
)


def field_of(body: Body) -> str:
    """The request field that holds `body`."""
    if isinstance(body, str):
        return "text"
    return "content" if isinstance(body, bytes) else "pages"


def resolve_mime_type(document: Document) -> str:
    """Returns the MIME type a document is read as: one of `hrag.values.formats`.

    A document without a type is what its first bytes say beyond doubt (PDF, HTML, EPUB, an
    Office document), and `text/plain` otherwise. Raises InvalidArgument for a type that is
    unknown or does not fit the body, and for bytes that are an archive of no known format.
    """
    given = document.mime_type.partition(";")[0].strip().lower()
    if not given:
        return _detected(document.body) if isinstance(document.body, bytes) else PLAIN_TEXT
    known = format_of(given)
    if known is not None and _fits(known, document.body):
        return known.mime_type
    raise InvalidArgument(
        f"mime_type is {quoted(document.mime_type)}; with {field_of(document.body)} it must be "
        f"{_allowed(document.body)} or empty{_hint(document.body)}",
        field=_FIELD,
    )


def require_readable(mime_type: str) -> None:
    """Raises InvalidArgument for a format whose libraries are not installed."""
    known = format_of(mime_type)
    if known is not None and known.needs_extra and not _has_extra():
        raise InvalidArgument(
            f"the document is of type {mime_type}, for which this indexer lacks the libraries; "
            f"its operator can install them: {FORMATS_EXTRA}",
            field=_FIELD,
        )


@cache
def _has_extra() -> bool:
    return all(find_spec(name) is not None for name in _LIBRARIES)


def _fits(known: Format, body: Body) -> bool:
    if isinstance(body, bytes):
        return True
    return known.is_text if isinstance(body, str) else known.mime_type in _PAGED


def _allowed(body: Body) -> str:
    fitting = [each for each in FORMATS if _fits(each, body)]
    return _listed(each for each in fitting if not each.needs_extra or _has_extra())


def _hint(body: Body) -> str:
    """What the extra would add, where it is not installed."""
    lacking = [each for each in FORMATS if each.needs_extra and _fits(each, body)]
    if _has_extra() or not lacking:
        return ""
    return f"; after {FORMATS_EXTRA} also {_listed(lacking)}"


def _listed(formats: Iterable[Format]) -> str:
    return ", ".join(each.mime_type for each in formats)


def _detected(content: bytes) -> str:
    if content.startswith(_PDF_MAGIC):
        return PDF
    if content.startswith(_ZIP_MAGIC):
        return _detected_archive(content)
    if content.startswith(_OLE_MAGIC):
        raise InvalidArgument(
            "content is an Office document that is encrypted or of an old format (.doc, .xls, "
            ".ppt); save it without a password as .docx, .xlsx or .pptx",
            field="content",
        )
    return HTML if _HTML.match(content) else PLAIN_TEXT


def _detected_archive(content: bytes) -> str:
    """The format whose main part's name comes first: an archive names a part before its bytes."""
    if content[_EPUB_START] == _EPUB_MAGIC:
        return EPUB
    places = {content.find(part): mime_type for part, mime_type in _MAIN_PARTS.items()}
    places.pop(-1, None)
    if not places:
        raise InvalidArgument(
            "content is a ZIP archive, and no DOCX, PPTX, XLSX or EPUB; send the documents in it "
            "one by one",
            field="content",
        )
    return places[min(places)]
