"""From a document as sent to its text with sections and pages. Pure.

Refuses here, before any costly work, what is too large, not text, blank, or made of runs
that would keep the tokenizer busy for minutes.
"""

from collections.abc import Sequence

import numpy as np

from hrag.errors import BlankDocument, InvalidArgument, TooLarge, UnreadableDocument
from hrag.ids import shown
from hrag.tree import PageSpan, ParsedText
from hrag.types import MARKDOWN, PDF, PLAIN_TEXT, Document, Page
from indexer_svc.markdown import find_sections
from indexer_svc.pdf import read_pages

MAX_PAGES = 100_000
# The tokenizer's time grows faster than the length of a run it cannot split.
MAX_RUN_CHARS = 1_000_000

_PDF_MAGIC = b"%PDF-"
_BOM = "\ufeff"
_PAGE_BREAK = "\n\n"
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060\x00"  # Nothing to see, though not white space.


def extract(document: Document, max_bytes: int) -> ParsedText:
    """Returns the document's text and outline.

    Raises TooLarge over `max_bytes` bytes of body or text, UnreadableDocument,
    BlankDocument, and InvalidArgument for an unknown type or an endless run.
    """
    mime_type = resolve_mime_type(document)
    body = document.body
    if isinstance(body, str):
        parsed = ParsedText(body)
        field = "text"
    elif isinstance(body, bytes):
        _check_size(len(body), max_bytes, "content")
        parsed = _from_bytes(body, mime_type)
        field = "content"
    else:
        parsed = join_pages(body)
        field = "pages"
    _check_text(parsed.text, max_bytes, field)
    if mime_type == MARKDOWN:
        return ParsedText(parsed.text, find_sections(parsed.text), parsed.pages)
    return parsed


def resolve_mime_type(document: Document) -> str:
    """The type a document is read as; InvalidArgument for one that cannot be read."""
    given = document.mime_type.partition(";")[0].strip().lower()
    is_bytes = isinstance(document.body, bytes)
    if not given:
        is_pdf = isinstance(document.body, bytes) and document.body.startswith(_PDF_MAGIC)
        return PDF if is_pdf else PLAIN_TEXT
    allowed = (PLAIN_TEXT, MARKDOWN, PDF) if is_bytes else (PLAIN_TEXT, MARKDOWN)
    if given not in allowed:
        raise InvalidArgument(
            f"mime_type is {shown(document.mime_type)}; allowed here: {', '.join(allowed)}",
            field="mime_type",
        )
    return given


def join_pages(pages: Sequence[Page]) -> ParsedText:
    """Pages as one text, a blank line between them."""
    if len(pages) > MAX_PAGES:
        raise TooLarge(
            f"document has {len(pages)} pages; at most {MAX_PAGES} are allowed", field="pages"
        )
    spans, at = [], 0
    for place, page in enumerate(pages, start=1):
        spans.append(PageSpan(page.number or place, at, at + len(page.text)))
        at += len(page.text) + len(_PAGE_BREAK)
    return ParsedText(_PAGE_BREAK.join(page.text for page in pages), pages=tuple(spans))


def _from_bytes(content: bytes, mime_type: str) -> ParsedText:
    if mime_type == PDF:
        return join_pages([Page(text) for text in read_pages(content, MAX_PAGES)])
    try:
        return ParsedText(content.decode().removeprefix(_BOM))
    except UnicodeDecodeError as error:
        raise UnreadableDocument(
            f"content is not UTF-8: byte {error.start} is {content[error.start]:#04x} "
            f"({error.reason})",
            field="content",
        ) from None


def _check_text(text: str, max_bytes: int, field: str) -> None:
    _check_size(len(text), max_bytes, field)  # A code point has at least one byte.
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{field} holds a lone surrogate at character {error.start}; it must be valid Unicode",
            field=field,
        ) from None
    _check_size(len(raw), max_bytes, field)
    if not text.strip().strip(_INVISIBLE).strip():
        raise BlankDocument(f"{field} holds no text; a document must say something", field=field)
    _check_runs(raw, field)


def _check_size(size: int, max_bytes: int, field: str) -> None:
    if size > max_bytes:
        raise TooLarge(
            f"{field} has over {max_bytes} bytes ({size}); at most {max_bytes} are allowed "
            "(HRAG_MAX_DOCUMENT_BYTES)",
            field=field,
        )


def _check_runs(raw: bytes, field: str) -> None:
    """Bytes bound characters from above, so only a long run is counted exactly."""
    if len(raw) <= MAX_RUN_CHARS:
        return
    values = np.frombuffer(raw, np.uint8)
    is_space = (values == 0x20) | ((values >= 0x09) & (values <= 0x0D))
    edges = np.concatenate(([-1], np.flatnonzero(is_space), [len(raw)]))
    for long in np.flatnonzero(np.diff(edges) > MAX_RUN_CHARS):
        start, end = int(edges[long]) + 1, int(edges[long + 1])
        _check_run(raw[start:end], start, field)


def _check_run(run: bytes, offset: int, field: str) -> None:
    longest = max(run.decode().split("\u3000"), key=len)  # CJK texts space with U+3000.
    if len(longest) > MAX_RUN_CHARS:
        raise InvalidArgument(
            f"{field} has a run of {len(longest)} characters without white space at byte "
            f"{offset}; at most {MAX_RUN_CHARS} are allowed",
            field=field,
        )
