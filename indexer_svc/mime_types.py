"""Determines the format of a document from the MIME type that the client sends, or the content."""

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
# The first entry in the archive of an EPUB is not compressed. _EPUB_MAGIC is the name of this entry
# followed by its content. In an EPUB, the bytes of the file in the range _EPUB_START are equal to
# _EPUB_MAGIC.
_EPUB_START = slice(30, 58)
_EPUB_MAGIC = b"mimetypeapplication/epub+zip"
# The formats of Office documents, by the name of the main file in the document's archive.
_MAIN_PARTS = {
    b"word/document.xml": DOCX,
    b"word/document2.xml": DOCX,  # The web version of Word writes this file.
    b"ppt/presentation.xml": PPTX,
    b"xl/workbook.xml": XLSX,
}
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE
)


def field_of(body: Body) -> str:
    """Returns the name of the request field that contains `body`."""
    if isinstance(body, str):
        return "text"
    return "content" if isinstance(body, bytes) else "pages"


def resolve_mime_type(document: Document) -> str:
    """Returns the MIME type by which a document is parsed: one of `hrag.values.formats`.

    If the client sends no type, the type is detected from the bytes. The detected type is
    `text/plain` if the bytes are not clearly a PDF, HTML, an EPUB or an Office document. Raises
    InvalidArgument for a type that is unknown or does not fit the body, and for an archive of an
    unknown format.
    """
    mime_type = document.mime_type.partition(";")[0].strip().lower()
    if not mime_type:
        return _detect(document.body) if isinstance(document.body, bytes) else PLAIN_TEXT
    known = format_of(mime_type)
    if known is not None and _fits(known, document.body):
        return known.mime_type
    raise InvalidArgument(
        f"mime_type is {quoted(document.mime_type)}; with {field_of(document.body)} it must be "
        f"{_allowed(document.body)} or empty{_hint(document.body)}",
        field=_FIELD,
    )


def require_readable(mime_type: str) -> None:
    """Raises InvalidArgument if the libraries that read this format are not installed."""
    known = format_of(mime_type)
    if known is not None and known.needs_extra and not has_formats_extra():
        raise InvalidArgument(
            f"the document is of type {mime_type}, for which this indexer lacks the libraries; "
            f"its operator can install them: {FORMATS_EXTRA}",
            field=_FIELD,
        )


@cache
def has_formats_extra() -> bool:
    """Returns True if the libraries of the extra `formats` are installed. The result is cached."""
    return all(find_spec(name) is not None for name in _LIBRARIES)


def _fits(format_: Format, body: Body) -> bool:
    """Returns True if a document of this format may be sent as this kind of body.

    The kinds are bytes, text and pages.
    """
    if isinstance(body, bytes):
        return True
    return format_.is_text if isinstance(body, str) else format_.mime_type in _PAGED


def _allowed(body: Body) -> str:
    fitting = [format_ for format_ in FORMATS if _fits(format_, body)]
    return _names_of(
        format_ for format_ in fitting if not format_.needs_extra or has_formats_extra()
    )


def _hint(body: Body) -> str:
    """Returns the end of an error message: the types that the extra `formats` would add.

    The result is empty if the extra is installed, or if none of its types fits the body.
    """
    lacking = [format_ for format_ in FORMATS if format_.needs_extra and _fits(format_, body)]
    if has_formats_extra() or not lacking:
        return ""
    return f"; after {FORMATS_EXTRA} also {_names_of(lacking)}"


def _names_of(formats: Iterable[Format]) -> str:
    return ", ".join(format_.mime_type for format_ in formats)


def _detect(content: bytes) -> str:
    if content.startswith(_PDF_MAGIC):
        return PDF
    if content.startswith(_ZIP_MAGIC):
        return _detect_archive(content)
    if content.startswith(_OLE_MAGIC):
        raise InvalidArgument(
            "content is an Office document that is encrypted or of an old format (.doc, .xls, "
            ".ppt); save it without a password as .docx, .xlsx or .pptx",
            field="content",
        )
    return HTML if _HTML.match(content) else PLAIN_TEXT


def _detect_archive(content: bytes) -> str:
    """Returns the format of a ZIP archive: EPUB, DOCX, PPTX or XLSX.

    An EPUB has certain bytes near its beginning. Each of the other formats has a main file with a
    certain name, for example `word/document.xml`. The format whose main file is named first in the
    archive's bytes is returned. Later bytes may have the names of other main files, because a
    document may contain another document, for example a workbook. This function assumes that the
    main file comes before such a document in the archive.

    Raises InvalidArgument if the archive names no main file of a known format.
    """
    if content[_EPUB_START] == _EPUB_MAGIC:
        return EPUB
    positions = {content.find(part): mime_type for part, mime_type in _MAIN_PARTS.items()}
    positions.pop(-1, None)
    if not positions:
        raise InvalidArgument(
            "content is a ZIP archive that is not a DOCX, PPTX, XLSX or EPUB; send the documents "
            "in it one by one",
            field="content",
        )
    return positions[min(positions)]
