"""Shows pages of documents, with the places of parts of their text.

A parser process renders a page from the document's original. Rendered images are cached, because a
reader looks at a page more than once. So are the words of a page whose text was recognised, because
recognising it again takes seconds. The key of a cached value has the tenant's collection and the
sequence number of the document, so nothing of a replaced document is ever returned.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from hrag.engine import CollectionHandle
from hrag.observe import metrics
from hrag.values.chunks import Span
from hrag.values.deadline import Deadline
from hrag.values.documents import DocumentInfo
from hrag.values.errors import (
    InvalidArgument,
    NotSupported,
    ServiceUnavailable,
    TooBusy,
    TooLarge,
    UnreadableDocument,
)
from hrag.values.formats import PICTURES
from hrag.values.page_images import DEFAULT_DPI, PageImage, check_page_request
from hrag.values.read_report import PageUnit
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.tree import PageSpan, ParsedText
from indexer_svc.parsers.parser_functions import SHOWN_FORMATS
from indexer_svc.parsers.parser_pool import ShowPage
from indexer_svc.parsers.recognised_words import RecognisedWords
from indexer_svc.stored_catalog import StoredCatalog
from indexer_svc.text_recognition import NO_RECOGNITION, TextRecognition

# The other fields of a reply take at most this many bytes, with the boxes.
_REPLY_FIELDS_BYTES = 512 << 10
# What these take in memory as tuples: a cached box, a span of a key, and a recognised word.
_BOX_BYTES, _SPAN_BYTES, _WORD_BYTES = 200, 120, 350
# If recognising a page fails with one of these errors, the page is shown without boxes.
_NOT_RECOGNISED = (UnreadableDocument, TooLarge, TooBusy, ServiceUnavailable)

_RECOGNISED = "the text of this page was recognised, and finding its places needs text recognition"

_Page = tuple[int, str, int, int]
"""The id of the collection, the id of the document, its sequence number, and the page."""


class PageImages:
    """Shows pages of documents of all tenants. Safe to call from several threads."""

    def __init__(
        self,
        catalog: StoredCatalog,
        show_page: ShowPage,
        cache_bytes: int,
        reply: ReplyLimit = UNLIMITED,
        recognition: TextRecognition = NO_RECOGNITION,
    ) -> None:
        """Renders pages of PDFs with `show_page`, and pictures with `recognition`.

        Keeps images, boxes and recognised words of at most `cache_bytes` bytes.
        """
        self._catalog = catalog
        self._show_page = show_page
        self._reply = reply
        self._recognition = recognition
        self._cache = _Cache(cache_bytes)

    def page(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        page: int,
        dpi: int,
        spans: Sequence[Span],
        deadline: Deadline,
    ) -> tuple[PageImage, DocumentInfo]:
        """Returns the image of a page, with the boxes of spans of the document's text.

        `page` is the number of the page. A `dpi` of 0 means DEFAULT_DPI. Raises InvalidArgument if
        the document has no such page, or for a value out of range. Raises NotSupported for a format
        whose pages cannot be shown, and OriginalNotFound. Also raises the errors of `ShowPage`.
        """
        dpi = dpi or DEFAULT_DPI
        check_page_request(dpi, len(spans))
        handle, info = self._catalog.opened_document(tenant_id, collection, document_id)
        self._shower_of(info)
        image: PageImage | None = self._cache.get(_image_key(_key(handle, info, page), dpi, spans))
        metrics.page_shown(is_cached=image is not None)
        if image is None:
            image, info = self._rendered(handle, document_id, page, dpi, spans, deadline)
        return image, info

    def _rendered(
        self,
        handle: CollectionHandle,
        document_id: str,
        page: int,
        dpi: int,
        spans: Sequence[Span],
        deadline: Deadline,
    ) -> tuple[PageImage, DocumentInfo]:
        info, parsed, content = self._catalog.document_with_original(handle, document_id)
        show_page = self._shower_of(info)
        key = _key(handle, info, page)
        index, place = _place_of(parsed, page)
        text = parsed.text[place.char_start : place.char_end]
        on_page = _spans_on_page(spans, place, parsed.text)
        words, problem = None, ""
        if place.is_recognised and any(text[start:end].strip() for start, end in on_page):
            file = (content, info.mime_type, index)
            words, problem = self._words(handle, key, file, deadline)
        arguments = {
            "index": index,
            "dpi": dpi,
            "text": text,
            "spans": [] if problem else on_page,
            "words": None if words is None else words.as_json(),
        }
        max_png_bytes = max(0, self._reply.left_bytes - _REPLY_FIELDS_BYTES)
        image = show_page(
            handle.tenant_id, deadline, content, info.mime_type, arguments, max_png_bytes
        )
        note = problem or _missing_note(image, text, on_page)
        image = replace(image, boxes_note=note)
        if not problem:
            self._cache.put(_image_key(key, dpi, spans), image, _image_bytes(image, len(spans)))
        return image, info

    def _words(
        self,
        handle: CollectionHandle,
        page: _Page,
        file: tuple[bytes, str, int],
        deadline: Deadline,
    ) -> tuple[RecognisedWords | None, str]:
        """Returns the words of a page whose text was recognised, or else why there are none.

        `file` is the document's original, its MIME type, and the index of the page.
        """
        words: RecognisedWords | None = self._cache.get(page)
        if words is not None:
            return words, ""
        if self._recognition.page_words is None:
            return None, f"{_RECOGNISED}: {self._recognition.advice}"
        try:
            words = self._recognition.page_words(handle.tenant_id, deadline, *file)
        except _NOT_RECOGNISED as error:
            return None, f"{_RECOGNISED}, which failed: {error.message}"
        self._cache.put(page, words, _WORD_BYTES * len(words.words))
        return words, ""

    def _shower_of(self, info: DocumentInfo) -> ShowPage:
        """Returns the function that shows pages of a document. Raises NotSupported."""
        if info.mime_type not in SHOWN_FORMATS:
            raise NotSupported(
                f"document {info.document_id!r} is of type {info.mime_type}; only pages of "
                f"{', '.join(sorted(SHOWN_FORMATS))} can be shown"
            )
        if info.mime_type not in PICTURES:
            return self._show_page
        if self._recognition.show_page is None:
            raise NotSupported(
                f"document {info.document_id!r} is a picture, and the parser of pictures is that "
                f"of text recognition: {self._recognition.advice}"
            )
        return self._recognition.show_page


def _key(handle: CollectionHandle, info: DocumentInfo, page: int) -> _Page:
    return handle.collection_id, info.document_id, info.sequence, page


def _image_key(page: _Page, dpi: int, spans: Sequence[Span]) -> Hashable:
    return page, dpi, tuple(map(_bounds, spans))


def _missing_note(image: PageImage, text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Returns a note if spans have text on the page and no boxes; else ""."""
    with_boxes = {box.span for box in image.boxes}
    on_page = [at for at, (start, end) in enumerate(spans) if text[start:end].strip()]
    missing = [at for at in on_page if at not in with_boxes]
    if not missing:
        return ""
    return f"the text of {len(missing)} of {len(on_page)} spans was not found on the page"


def _place_of(parsed: ParsedText, number: int) -> tuple[int, PageSpan]:
    """Returns the index and the place of the page with this number. Raises InvalidArgument."""
    if parsed.page_unit is PageUnit.PAGE:
        for index, place in enumerate(parsed.pages):
            if place.number == number:
                return index, place
    raise InvalidArgument(
        f"page is {number}; the document has {len(parsed.pages)} pages", field="page"
    )


def _bounds(span: Span) -> tuple[int, int]:
    """Returns the offsets of a span, in characters, or as negative numbers in bytes."""
    if span.char_end:
        return span.char_start, span.char_end
    return -span.byte_start, -span.byte_end


def _spans_on_page(
    spans: Sequence[Span], place: PageSpan, parsed_text: str
) -> list[tuple[int, int]]:
    """Returns the part of each span that lies on a page, in characters from the page's start.

    Only the text before the page and the page are encoded, and each of them once.
    """
    text = parsed_text[place.char_start : place.char_end]
    if all(span.char_end for span in spans):
        byte_start, encoded = 0, b""
    else:
        byte_start, encoded = len(parsed_text[: place.char_start].encode()), text.encode()

    def on_page(span: Span) -> tuple[int, int]:
        if span.char_end:
            offsets = (span.char_start - place.char_start, span.char_end - place.char_start)
        else:
            offsets = (
                _characters_in(encoded, span.byte_start - byte_start),
                _characters_in(encoded, span.byte_end - byte_start),
            )
        start = min(max(offsets[0], 0), len(text))
        return start, min(max(offsets[1], start), len(text))

    return [on_page(span) for span in spans]


def _characters_in(encoded: bytes, byte_count: int) -> int:
    """Returns how many whole characters the first bytes of an encoded text have."""
    return len(encoded[: max(byte_count, 0)].decode("utf-8", "ignore"))


def _image_bytes(image: PageImage, span_count: int) -> int:
    """Returns about how many bytes an image takes in the cache, with the spans of its key."""
    return len(image.png) + _BOX_BYTES * len(image.boxes) + _SPAN_BYTES * span_count


class _Cache:
    """Keeps the values that were used last, up to a count of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any:
        """Returns the value of a key; None if it is not kept."""
        with self._lock:
            value, _ = self._values.get(key, (None, 0))
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Hashable, value: Any, size_bytes: int) -> None:
        """Keeps a value of about `size_bytes` bytes."""
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value, size_bytes
            self._bytes += size_bytes
            while self._bytes > self._max_bytes:
                self._bytes -= self._values.popitem(last=False)[1][1]
