"""Pages are rendered once, kept within a limit, and never shown for a replaced document."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hrag import errors
from hrag.types import PDF, Span
from hrag.values.deadline import NEVER, Deadline
from hrag.values.page_images import PageImage, SpanBox
from hrag.values.reply_limit import ReplyLimit
from hrag.values.tree import PageSpan, ParsedText
from indexer_svc.page_images import PageImages, _spans_on_page
from indexer_svc.stored_catalog import StoredCatalog
from tests.support.documents.fakes import collection_settings, prepared
from tests.support.engines.memory_engine import MemoryEngine

TEXT = ParsedText("Über one. Page two.", (), (PageSpan(1, 0, 10), PageSpan(2, 10, 19)))
DOCUMENT = replace(prepared("d", TEXT), original=b"%PDF-", mime_type=PDF)
PNG_BYTES = 1_000


class Renderer:
    """Returns an image of 1,000 bytes, and records what it was asked for."""

    boxes: tuple[SpanBox, ...] = ()

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes, Mapping[str, Any], int]] = []

    def __call__(
        self,
        tenant_id: str,
        deadline: Deadline,
        content: bytes,
        mime_type: str,
        page: Mapping[str, Any],
        max_png_bytes: int,
    ) -> PageImage:
        self.requests.append((tenant_id, content, page, max_png_bytes))
        return PageImage(bytes(PNG_BYTES), 10, 10, 5.0, 5.0, self.boxes)


@pytest.fixture
def writer() -> Any:
    engine = MemoryEngine()
    writer = engine.writer()
    settings = replace(collection_settings(), keep_originals=True)
    for name in ("c", "c2"):
        writer.create_collection("t", name, settings)
        writer.put(writer.open("t", name), DOCUMENT)
    return writer


@pytest.fixture
def renderer() -> Renderer:
    return Renderer()


@pytest.fixture
def pages(writer: Any, renderer: Renderer) -> PageImages:
    catalog = StoredCatalog(writer)
    return PageImages(catalog, renderer, 3 * PNG_BYTES + 500, ReplyLimit(1 << 20))


def show(
    pages: PageImages, page: int = 1, *spans: Span, name: str = "c", dpi: int = 72, **fields: str
) -> None:
    document_id = fields.get("document_id", "d")
    pages.page("t", name, document_id, page, dpi, spans, NEVER)


def test_a_page_is_rendered_with_its_own_text_and_spans(pages, renderer):
    both = Span(char_start=5, char_end=14, byte_start=0, byte_end=0)
    in_bytes = Span(byte_start=6, byte_end=10, char_start=0, char_end=0)
    show(pages, 1, both, in_bytes, dpi=0)
    show(pages, 2, both, in_bytes)
    (tenant_id, content, first, max_bytes), (_, _, second, _) = renderer.requests
    assert (tenant_id, content, max_bytes) == ("t", b"%PDF-", 1 << 19)
    assert first == {"index": 0, "dpi": 110, "text": "Über one. ", "spans": [(5, 10), (5, 9)]}
    assert second == {"index": 1, "dpi": 72, "text": "Page two.", "spans": [(0, 4), (0, 0)]}


def test_an_image_is_rendered_once_for_each_page_resolution_span_and_collection(pages, renderer):
    span = Span(0, 0, 0, 4)
    for _ in range(2):
        show(pages)
        show(pages, 1, span)
        show(pages, 1, dpi=100)
    assert len(renderer.requests) == 3
    show(pages, name="c2")
    assert len(renderer.requests) == 4


def test_the_images_that_were_used_last_are_kept(pages, renderer):
    for page, dpi in ((1, 72), (1, 80), (1, 90), (1, 72), (1, 100), (1, 72), (1, 80)):
        show(pages, page, dpi=dpi)
    assert [page["dpi"] for _, _, page, _ in renderer.requests] == [72, 80, 90, 100, 80]


def test_the_boxes_and_spans_of_an_image_count_as_kept(pages, renderer):
    renderer.boxes = (SpanBox(0, 0.0, 0.0, 1.0, 1.0),) * 13
    show(pages)
    show(pages)
    assert len(renderer.requests) == 2  # 13 boxes take 2,600 bytes, and the cache has 3,500.
    renderer.boxes = ()
    show(pages, 1, *[Span(0, 1, 0, 1)] * 22)
    show(pages, 1, *[Span(0, 1, 0, 1)] * 22)
    assert len(renderer.requests) == 4


class CountedText(str):
    """A text that counts how often it is encoded."""

    encodings = 0

    def encode(self, *_arguments: Any) -> bytes:
        self.encodings += 1
        return str(self).encode()


def test_a_text_is_encoded_once_for_all_spans():
    """Each span in bytes gives the characters that a decoder of the whole text gives."""
    text = CountedText("Über 😀 one. Pagé two. Ende")
    place = PageSpan(2, 12, 22)
    encoded = str(text).encode()
    bounds = [(start, end) for start in range(len(encoded)) for end in range(1, len(encoded) + 3)]
    spans = [Span(byte_start=a, byte_end=b, char_start=0, char_end=0) for a, b in bounds]
    expected = []
    for start, end in bounds:
        first, last = (len(encoded[:at].decode("utf-8", "ignore")) - 12 for at in (start, end))
        first = min(max(first, 0), 10)
        expected.append((first, min(max(last, first), 10)))
    assert _spans_on_page(spans, place, text) == expected
    assert text.encodings <= 1


def test_an_image_of_a_replaced_document_is_not_shown(pages, renderer, writer):
    show(pages)
    writer.put(writer.open("t", "c"), replace(DOCUMENT, original=b"%PDF-2", content_hash="other"))
    show(pages)
    assert [content for _, content, _, _ in renderer.requests] == [b"%PDF-", b"%PDF-2"]


@pytest.mark.parametrize(
    ("error", "field", "arguments"),
    [
        (errors.InvalidArgument, "page", {"page": 3}),
        (errors.InvalidArgument, "page", {"page": 0}),
        (errors.InvalidArgument, "dpi", {"dpi": 35}),
        (errors.InvalidArgument, "dpi", {"dpi": 301}),
        (errors.DocumentNotFound, "document_id", {"document_id": "other"}),
        (errors.CollectionNotFound, "collection", {"name": "other"}),
    ],
)
def test_a_page_that_does_not_exist_is_refused(pages, renderer, error, field, arguments):
    with pytest.raises(error) as refused:
        show(pages, **arguments)
    assert refused.value.field == field
    assert not renderer.requests


def test_only_pdfs_with_an_original_are_shown(pages, writer):
    handle = writer.open("t", "c")
    writer.put(handle, replace(DOCUMENT, mime_type="text/html", content_hash="html"))
    with pytest.raises(errors.NotSupported, match=r"text/html; only pages of application/pdf"):
        show(pages)
    writer.put(handle, replace(DOCUMENT, original=None, original_sha256="", content_hash="none"))
    with pytest.raises(errors.OriginalNotFound):
        show(pages)
