"""Renders a page of a PDF as a PNG, with the boxes of parts of the page's text."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pypdfium2 as pdfium

from hrag.values.errors import InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.page_images import MAX_PAGE_BOXES, PageImage, SpanBox
from indexer_svc.parsers.pdf.characters import page_content, shown_box
from indexer_svc.parsers.pdf.page_picture import picture_of
from indexer_svc.parsers.pdf.recognised_boxes import recognised_boxes, recognised_words
from indexer_svc.parsers.pdf.span_boxes import printed_words, span_boxes
from indexer_svc.parsers.recognised_words import RecognisedWords
from indexer_svc.parsers.recognition import PageRecogniser

_POINTS_PER_INCH = 72
# At MAX_DPI, a page of A4 has 8.7 million pixels, and a square page or picture with the longer side
# of A4 has 12.3 million. A pixel takes three bytes.
MAX_IMAGE_PIXELS = 12_500_000
# Level 3 compresses a page of text by 5 % less than the default, in a third of the time.
_COMPRESSION = 3
_FIELD = "page"
_RGB = 3


def page_image(
    content: bytes,
    index: int,
    dpi: float,
    text: str,
    spans: Sequence[tuple[int, int]],
    max_png_bytes: int,
    words: RecognisedWords | None = None,
) -> PageImage:
    """Renders the page with this index, and finds the boxes of spans of its text.

    `text` is the stored text of the page, and `spans` are pairs of offsets of its characters. If
    the text was recognised, `words` are the words of the page. Raises TooLarge if the image would
    have more than MAX_IMAGE_PIXELS pixels or `max_png_bytes` bytes, and UnreadableDocument if the
    page cannot be read.
    """
    with _open_page(content, index) as page:
        image = _image(page, dpi, text, spans, words)
    return checked_image(image, max_png_bytes)


def page_words(content: bytes, index: int, recogniser: PageRecogniser) -> RecognisedWords:
    """Recognises the page with this index, and returns its words.

    Raises UnreadableDocument if the page cannot be read.
    """
    with _open_page(content, index) as page:
        return recognised_words(recogniser.page(picture_of(page)))


@contextmanager
def _open_page(content: bytes, index: int) -> Iterator[pdfium.PdfPage]:
    try:
        with pdfium.PdfDocument(content) as document:
            if index >= len(document):
                raise UnreadableDocument(
                    f"the file has {len(document)} pages, and no page {index + 1}", field=_FIELD
                )
            document.init_forms()
            with closing(document[index]) as page:
                yield page
    except pdfium.PdfiumError as error:
        problem = f"page {index + 1} cannot be shown: {error}"
        raise UnreadableDocument(problem, field=_FIELD) from None


def _image(
    page: pdfium.PdfPage,
    dpi: float,
    text: str,
    spans: Sequence[tuple[int, int]],
    words: RecognisedWords | None,
) -> PageImage:
    width, height = page.get_size()
    scale = dpi / _POINTS_PER_INCH
    check_pixels(width * scale * height * scale)
    boxes: tuple[SpanBox, ...] = ()
    if spans:
        found = _boxes(page, text, spans) if words is None else recognised_boxes(words, text, spans)
        boxes = tuple(found)
    bitmap = page.render(scale=scale, rev_byteorder=True)
    try:
        return PageImage(_png(bitmap), bitmap.width, bitmap.height, width, height, boxes)
    finally:
        bitmap.close()


def _boxes(page: pdfium.PdfPage, text: str, spans: Sequence[tuple[int, int]]) -> Iterator[SpanBox]:
    content = page_content(page)
    if not content.has_places:
        return
    for index, boxes in enumerate(span_boxes(text, spans, printed_words(content))):
        for box in boxes:
            shown = shown_box(page, box, content.direction)
            yield SpanBox(index, *(min(max(side, 0.0), 1.0) for side in shown))


def check_pixels(pixels: float) -> None:
    """Raises TooLarge if an image would have more than MAX_IMAGE_PIXELS pixels."""
    if pixels > MAX_IMAGE_PIXELS:
        raise TooLarge(
            f"the image would have {pixels:,.0f} pixels; at most {MAX_IMAGE_PIXELS:,} are allowed; "
            "ask for a lower dpi",
            field="dpi",
            limit="picture_pixels",
        )


def checked_image(image: PageImage, max_png_bytes: int) -> PageImage:
    """Returns an image. Raises TooLarge if it has more bytes or more boxes than are allowed."""
    if len(image.png) > max_png_bytes:
        raise TooLarge(
            f"the image has {len(image.png):,} bytes; at most {max_png_bytes:,} are allowed "
            "(HRAG_MAX_REPLY_BYTES); ask for a lower dpi",
            field="dpi",
            limit="picture_pixels",
        )
    if len(image.boxes) > MAX_PAGE_BOXES:
        raise InvalidArgument(
            f"the spans have {len(image.boxes):,} boxes on the page; at most {MAX_PAGE_BOXES:,} "
            "are allowed; ask for fewer spans",
            field="spans",
        )
    return image


def _png(bitmap: Any) -> bytes:
    """Encodes a bitmap of 8-bit RGB, or of grey, as PNG (ISO/IEC 15948).

    Most pages are black on white. As a grey image they are encoded in a third of the time.
    """
    row_bytes = bitmap.width * bitmap.n_channels
    pixels, stride = memoryview(bitmap.buffer).cast("B"), bitmap.stride
    packed = b"".join(pixels[at * stride : at * stride + row_bytes] for at in range(bitmap.height))
    channels = bitmap.n_channels
    if channels == _RGB and packed[::_RGB] == packed[1::_RGB] == packed[2::_RGB]:
        packed, row_bytes, channels = packed[::_RGB], bitmap.width, 1
    rows = (packed[at : at + row_bytes] for at in range(0, len(packed), row_bytes))
    # Each row begins with the number of its filter. 0 means that the row is not filtered.
    data = b"".join(part for row in rows for part in (b"\0", row))
    colour = {1: 0, _RGB: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(data, _COMPRESSION)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
