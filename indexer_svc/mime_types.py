"""Determines the format of a document from the MIME type that the client sends, or by detection."""

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec

from hrag.values.documents import Document, Page
from hrag.values.errors import InvalidArgument
from hrag.values.formats import (
    FORMATS,
    FORMATS_EXTRA,
    MARKDOWN,
    PLAIN_TEXT,
    UNKNOWN_TYPES,
    Format,
    format_of,
    plain_mime_type,
)
from hrag.values.ids import quoted
from indexer_svc.file_format import REFUSED_TYPES, detect
from indexer_svc.parsers.parser_functions import READ_FORMATS

Body = str | bytes | tuple[Page, ...]

_FIELD = "mime_type"
_LIBRARIES = ("oxmsg", "pylatexenc", "python_calamine", "selectolax")
_PAGED = (PLAIN_TEXT, MARKDOWN)


def field_of(body: Body) -> str:
    """Returns the name of the request field that contains `body`."""
    if isinstance(body, str):
        return "text"
    return "content" if isinstance(body, bytes) else "pages"


def resolve_mime_type(document: Document) -> str:
    """Returns the MIME type by which a document is parsed: one of `hrag.values.formats`.

    If the client sends no type or `application/octet-stream`, the type of bytes is detected from
    them and from the name in `source`, or else in the document id. Text and pages without a type
    are plain text. Raises InvalidArgument for a type that is unknown or does not fit the body, and
    UnreadableDocument for bytes of no format that is read.
    """
    mime_type = plain_mime_type(document.mime_type)
    if mime_type in UNKNOWN_TYPES:
        if isinstance(document.body, bytes):
            return detect(document.body, document.source or document.document_id)
        return PLAIN_TEXT
    known = format_of(mime_type)
    if known is not None and _fits(known, document.body):
        return known.mime_type
    if meaning := REFUSED_TYPES.get(mime_type):
        problem = f"mime_type {mime_type} says that the file is {meaning}"
        raise InvalidArgument(problem, field=_FIELD)
    raise InvalidArgument(
        f"mime_type is {quoted(document.mime_type)}; with {field_of(document.body)} it must be "
        f"{_allowed(document.body)} or empty{_hint(document.body)}",
        field=_FIELD,
    )


def require_readable(mime_type: str, foreign_format: str = "") -> None:
    """Raises InvalidArgument if the parser or libraries that read this format are not installed.

    `foreign_format` is the name of a format that needs a parser, with its article.
    """
    known = format_of(mime_type)
    if known is not None and known.needs_extra and not has_formats_extra():
        raise InvalidArgument(
            f"the document is of type {mime_type}, for which this indexer lacks the libraries; "
            f"its operator can install them: {FORMATS_EXTRA}",
            field=_FIELD,
        )
    if foreign_format and mime_type not in READ_FORMATS:
        raise InvalidArgument(
            f"the document is {foreign_format} ({mime_type}), which this indexer does not read",
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
    return f"; after {FORMATS_EXTRA}, also {_names_of(lacking)}"


def _names_of(formats: Iterable[Format]) -> str:
    return ", ".join(format_.mime_type for format_ in formats)
