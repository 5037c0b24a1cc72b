"""Shows pages of documents, with the places of parts of their text.

A parser process renders a page from the document's original. Rendered images are cached, because a
reader looks at a page more than once. The key of an image has the tenant's collection and the
sequence number of the document, so an image of a replaced document is never returned.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hrag.engine import CollectionHandle
from hrag.observe import metrics
from hrag.values.chunks import Span
from hrag.values.deadline import Deadline
from hrag.values.documents import DocumentInfo
from hrag.values.errors import InvalidArgument, NotSupported
from hrag.values.page_images import DEFAULT_DPI, PageImage, check_page_request
from hrag.values.read_report import PageUnit
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.tree import PageSpan, ParsedText
from indexer_svc.parsers.parser_functions import SHOWN_FORMATS
from indexer_svc.stored_catalog import StoredCatalog

# The other fields of a reply take at most this many bytes, with the boxes.
_REPLY_FIELDS_BYTES = 512 << 10
# What a cached box and a span of a key take in memory: tuples with their numbers.
_BOX_BYTES, _SPAN_BYTES = 200, 120

ShowPage = Callable[[str, Deadline, bytes, str, Mapping[str, Any], int], PageImage]
"""Renders a page in a parser process; see `ParserPool.show_page`."""
_Key = tuple[int, str, int, int, int, tuple[tuple[int, int], ...]]


class PageImages:
    """Shows pages of documents of all tenants. Safe to call from several threads."""

    def __init__(
        self,
        catalog: StoredCatalog,
        show_page: ShowPage,
        cache_bytes: int,
        reply: ReplyLimit = UNLIMITED,
    ) -> None:
        """Renders pages with `show_page`; keeps images and boxes of at most `cache_bytes` bytes."""
        self._catalog = catalog
        self._show_page = show_page
        self._reply = reply
        self._cache = _ImageCache(cache_bytes)

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
        _check_format(info)
        bounds = tuple(map(_bounds, spans))
        key = (handle.collection_id, document_id, info.sequence, page, dpi, bounds)
        image = self._cache.get(key)
        metrics.page_shown(is_cached=image is not None)
        if image is None:
            image, info = self._rendered(handle, document_id, page, dpi, spans, deadline)
            key = (handle.collection_id, document_id, info.sequence, page, dpi, bounds)
            self._cache.put(key, image)
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
        _check_format(info)
        index, place = _place_of(parsed, page)
        text = parsed.text[place.char_start : place.char_end]
        arguments = {
            "index": index,
            "dpi": dpi,
            "text": text,
            "spans": _spans_on_page(spans, place, parsed.text),
        }
        max_png_bytes = max(0, self._reply.left_bytes - _REPLY_FIELDS_BYTES)
        image = self._show_page(
            handle.tenant_id, deadline, content, info.mime_type, arguments, max_png_bytes
        )
        return image, info


def _check_format(info: DocumentInfo) -> None:
    if info.mime_type not in SHOWN_FORMATS:
        raise NotSupported(
            f"document {info.document_id!r} is of type {info.mime_type}; only pages of "
            f"{', '.join(sorted(SHOWN_FORMATS))} can be shown"
        )


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


def _entry_bytes(key: _Key, image: PageImage) -> int:
    """Returns about how many bytes an image and its key take in the cache."""
    return len(image.png) + _BOX_BYTES * len(image.boxes) + _SPAN_BYTES * len(key[-1])


class _ImageCache:
    """Keeps the images that were used last, with their boxes, up to a count of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._images: OrderedDict[_Key, PageImage] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> PageImage | None:
        with self._lock:
            image = self._images.get(key)
            if image is not None:
                self._images.move_to_end(key)
            return image

    def put(self, key: _Key, image: PageImage) -> None:
        with self._lock:
            if key in self._images:
                return
            self._images[key] = image
            self._bytes += _entry_bytes(key, image)
            while self._bytes > self._max_bytes:
                self._bytes -= _entry_bytes(*self._images.popitem(last=False))
