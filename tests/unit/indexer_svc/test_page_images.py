"""Pages are rendered once, kept within a limit, and never shown for a replaced document."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hrag import errors
from hrag.types import PDF, Span
from hrag.values.deadline import NEVER, Deadline
from hrag.values.formats import PICTURES
from hrag.values.page_images import PageImage, SpanBox
from hrag.values.reply_limit import ReplyLimit
from hrag.values.tree import PageSpan, ParsedText
from indexer_svc.page_images import PageImages, _spans_on_page
from indexer_svc.parsers.recognised_words import PrintedWord, RecognisedWords
from indexer_svc.stored_catalog import StoredCatalog
from indexer_svc.text_recognition import NO_RECOGNITION, TextRecognition
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
    words = {"words": None}
    one = {"index": 0, "dpi": 110, "text": "Über one. ", "spans": [(5, 10), (5, 9)]}
    assert first == one | words
    two = {"index": 1, "dpi": 72, "text": "Page two.", "spans": [(0, 4), (0, 0)]}
    assert second == two | words


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


class Recogniser:
    """Finds one word on each page, or raises `failure`; records the pages."""

    failure: Exception | None = None

    def __init__(self) -> None:
        self.pages: list[tuple[str, bytes, str, int]] = []

    def __call__(
        self, tenant_id: str, deadline: Deadline, content: bytes, mime_type: str, index: int
    ) -> RecognisedWords:
        self.pages.append((tenant_id, content, mime_type, index))
        if self.failure is not None:
            raise self.failure
        return WORDS


WORDS = RecognisedWords((PrintedWord("two.", (1.0, 1.0, 5.0, 2.0), 0),), 0, 0.0, 10.0, 10.0)
SCAN_TEXT = ParsedText(
    "Read. Page two.", (), (PageSpan(1, 0, 6), PageSpan(2, 6, 15, is_recognised=True))
)
ON_SCAN = Span(char_start=11, char_end=15, byte_start=0, byte_end=0)


@pytest.fixture
def recogniser() -> Recogniser:
    return Recogniser()


def scan_pages(
    writer: Any,
    renderer: Renderer,
    recognition: TextRecognition,
    mime_type: str = PDF,
    max_bytes: int = 1 << 20,
) -> PageImages:
    """Stores a document whose second page is recognised; returns what shows its pages."""
    scan = prepared("d", SCAN_TEXT)
    scan = replace(scan, original=b"scan", mime_type=mime_type, content_hash=mime_type)
    writer.put(writer.open("t", "c"), scan)
    renderer.boxes = (SpanBox(0, 0.0, 0.0, 1.0, 1.0),)
    return PageImages(StoredCatalog(writer), renderer, max_bytes, recognition=recognition)


def test_a_recognised_page_is_recognised_once_for_all_spans_and_sizes(writer, renderer, recogniser):
    pages = scan_pages(writer, renderer, TextRecognition(None, 1, recogniser, renderer))
    show(pages, 2, ON_SCAN)
    show(pages, 2, ON_SCAN, dpi=100)
    show(pages, 2, Span(0, 0, 6, 9))
    assert recogniser.pages == [("t", b"scan", PDF, 1)]
    assert [page["words"] for _, _, page, _ in renderer.requests] == [WORDS.as_json()] * 3


def test_a_page_is_not_recognised_if_no_text_of_it_is_asked_for(writer, renderer, recogniser):
    pages = scan_pages(writer, renderer, TextRecognition(None, 1, recogniser, renderer))
    show(pages, 2)
    show(pages, 2, Span(0, 4, 0, 4))
    show(pages, 1, Span(0, 4, 0, 4))
    assert not recogniser.pages
    assert [page["words"] for _, _, page, _ in renderer.requests] == [None] * 3


def test_without_text_recognition_a_recognised_page_has_no_boxes_and_the_reply_says_why(
    writer, renderer
):
    pages = scan_pages(writer, renderer, NO_RECOGNITION)
    renderer.boxes = ()
    image, _ = pages.page("t", "c", "d", 2, 72, [ON_SCAN], NEVER)
    assert image.boxes_note.startswith("the text of this page was recognised")
    assert "HRAG_OCR_MAX_PAGES" in image.boxes_note or "pip install" in image.boxes_note
    assert renderer.requests[0][2]["spans"] == []


@pytest.mark.parametrize("failure", [errors.TooBusy("later"), errors.TooLarge("too slow")])
def test_if_recognition_fails_the_page_is_shown_and_the_next_call_tries_again(
    writer, renderer, recogniser, failure
):
    pages = scan_pages(writer, renderer, TextRecognition(None, 1, recogniser, renderer))
    recogniser.failure, renderer.boxes = failure, ()
    image, _ = pages.page("t", "c", "d", 2, 72, [ON_SCAN], NEVER)
    assert image.boxes_note.endswith(f"which failed: {failure.message}")
    recogniser.failure, renderer.boxes = None, (SpanBox(0, 0.0, 0.0, 1.0, 1.0),)
    image, _ = pages.page("t", "c", "d", 2, 72, [ON_SCAN], NEVER)
    assert (len(image.boxes), image.boxes_note) == (1, "")


def test_the_words_of_a_page_count_as_kept(writer, renderer, recogniser):
    recognition = TextRecognition(None, 1, recogniser, renderer)
    pages = scan_pages(writer, renderer, recognition, max_bytes=PNG_BYTES + 400)
    for dpi in (72, 80, 90):
        show(pages, 2, ON_SCAN, dpi=dpi)
    assert len(recogniser.pages) == 3


def test_text_that_is_not_found_is_named_in_the_reply(pages, renderer):
    found, missing = Span(0, 4, 0, 4), Span(0, 8, 5, 8)
    renderer.boxes = (SpanBox(0, 0.0, 0.0, 1.0, 1.0),)
    spans = [found, missing, Span(0, 0, 11, 14)]
    image, _ = pages.page("t", "c", "d", 1, 72, spans, NEVER)
    assert image.boxes_note == "the text of 1 of 2 spans was not found on the page"


@pytest.mark.parametrize("mime_type", PICTURES)
def test_a_picture_is_shown_by_the_process_that_reads_pictures(
    writer, renderer, recogniser, mime_type
):
    shower = Renderer()
    recognition = TextRecognition(None, 1, recogniser, shower)
    pages = scan_pages(writer, renderer, recognition, mime_type)
    show(pages, 2, ON_SCAN)
    assert (len(shower.requests), renderer.requests) == (1, [])
    pages = scan_pages(writer, renderer, NO_RECOGNITION, mime_type)
    with pytest.raises(errors.NotSupported, match=r"is a picture, .* text recognition: "):
        show(pages, 2)


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


def test_only_files_with_pages_and_an_original_are_shown(pages, writer):
    handle = writer.open("t", "c")
    writer.put(handle, replace(DOCUMENT, mime_type="text/html", content_hash="html"))
    with pytest.raises(
        errors.NotSupported, match=r"text/html; only pages of application/pdf, image/"
    ):
        show(pages)
    writer.put(handle, replace(DOCUMENT, original=None, original_sha256="", content_hash="none"))
    with pytest.raises(errors.OriginalNotFound):
        show(pages)
