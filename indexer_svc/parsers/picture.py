"""Parses and shows pictures of pages: PNG, JPEG, and TIFF with any number of pages.

The text of a picture is recognised. A picture is decoded only if its pixels fit the memory of the
process, and made as small as the recogniser needs it. Pillow opens the file only as one of these
formats, because it also has decoders for many formats that nobody sends.
"""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import numpy as np
from PIL import ExifTags, Image, ImageSequence, UnidentifiedImageError

# A confined process cannot load modules, and Pillow would load these when it opens or converts a
# picture.
from PIL import (  # noqa: F401  # isort: skip
    ImageColor,
    ImagePalette,
    JpegImagePlugin,
    MpoImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
)

from hrag.values.document_limits import MAX_PAGES, MAX_PICTURE_PIXELS
from hrag.values.errors import InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.page_images import PageImage
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.pdf.layout.document_layout import DocumentLayout
from indexer_svc.parsers.pdf.page_content import PageContent
from indexer_svc.parsers.pdf.page_image import check_pixels, checked_image
from indexer_svc.parsers.pdf.page_picture import MAX_SIDE_PIXELS
from indexer_svc.parsers.pdf.pdf_file import write_page
from indexer_svc.parsers.pdf.recognised_boxes import recognised_boxes, recognised_words
from indexer_svc.parsers.pdf.recognised_content import recognised_content
from indexer_svc.parsers.recognised_words import RecognisedWords
from indexer_svc.parsers.recognition import PageRecogniser, Picture
from indexer_svc.parsers.text_writer import TextWriter

_FORMATS = ("JPEG", "PNG", "TIFF")
_FIELD, _SHOWN_FIELD = "content", "page"
# The modes of pictures with more than 256 grey values. They are divided by 256.
_DEEP_MODES = ("I;16", "I;16B", "I;16L", "I", "F")
_DEEP_FACTOR = 256
_GREY_MODES = ("1", "L", "LA", *_DEEP_MODES)
# The longer side of A4.
_A4_POINTS = 842.0
_POINTS_PER_INCH = 72
# As for pages of PDFs: the default takes three times as long.
_COMPRESSION = 3
# For each orientation (Exif 2.3, 4.6.4), the change that makes a picture upright. A picture whose
# orientation is 1 is upright already.
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def parse_picture(content: bytes, max_text_bytes: int, recogniser: PageRecogniser) -> ParsedFile:
    """Returns the recognised text of each page of a picture.

    Pages that the recogniser may not recognise any more have no text, and the report names them.
    Raises UnreadableDocument for a damaged picture, and TooLarge for a page of more than
    MAX_PICTURE_PIXELS pixels or for more than MAX_PAGES pages.
    """
    pages: list[PageContent] = []
    with _open_pages(content, _FIELD) as opened:
        for page in opened:
            if recogniser.is_exhausted:
                pages.append(PageContent(page.width, page.height, has_pictures=True))
            else:
                pages.append(recognised_content(recogniser.page(_picture(page))))
    layout = DocumentLayout(len(pages))
    for page_content in pages:
        layout.add(page_content)
    writer = TextWriter(max_text_bytes)
    for blocks, page_content in zip(layout.pages(), pages, strict=True):
        write_page(writer, blocks, is_recognised=bool(page_content.runs))
    return writer.parsed()


def page_words(content: bytes, index: int, recogniser: PageRecogniser) -> RecognisedWords:
    """Recognises the page with this index, and returns its words.

    Raises UnreadableDocument and TooLarge as `parse_picture` does.
    """
    with _open_pages(content, _SHOWN_FIELD) as opened:
        return recognised_words(recogniser.page(_picture(_page_at(opened, index))))


def page_image(
    content: bytes,
    index: int,
    dpi: float,
    text: str,
    spans: Sequence[tuple[int, int]],
    max_png_bytes: int,
    words: RecognisedWords | None = None,
) -> PageImage:
    """Shows the page with this index upright, with the boxes of spans of its text.

    The arguments are those of `pdf.page_image`; without `words` there are no boxes. The resolutions
    that files of pictures declare are often wrong, so the longer side of a page counts as that of
    A4. Raises the errors of `pdf.page_image`, and TooLarge as `parse_picture` does.
    """
    with _open_pages(content, _SHOWN_FIELD) as opened:
        page = _page_at(opened, index)
        scale = _A4_POINTS / max(page.width, page.height) * dpi / _POINTS_PER_INCH
        size = round(page.width * scale) or 1, round(page.height * scale) or 1
        check_pixels(size[0] * size[1])
        is_grey = page.mode in _GREY_MODES
        image = _upright(page, max(size))
    if (image.width > image.height) != (size[0] > size[1]):  # The camera lay on its side.
        size = size[1], size[0]
    image = image.resize(size, Image.Resampling.LANCZOS)
    file = io.BytesIO()
    (image.convert("L") if is_grey else image).save(file, "PNG", compress_level=_COMPRESSION)
    width, height = (side / dpi * _POINTS_PER_INCH for side in size)
    boxes = () if words is None else tuple(recognised_boxes(words, text, spans))
    return checked_image(PageImage(file.getvalue(), *size, width, height, boxes), max_png_bytes)


@contextmanager
def _open_pages(content: bytes, field: str) -> Iterator[Iterator[Image.Image]]:
    """Opens a picture and gives an iterator over its pages.

    In the `with` block, errors of Pillow become UnreadableDocument for the field `field`.
    """
    # MAX_PICTURE_PIXELS limits them instead, with an error for the client.
    Image.MAX_IMAGE_PIXELS = None
    try:
        # Pillow warns of damage that it can ignore.
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(content), formats=_FORMATS) as image,
        ):
            yield _checked_pages(image)
    except InvalidArgument:
        raise
    except UnidentifiedImageError:
        # Its message has nothing but the address of an object in memory.
        raise UnreadableDocument(
            "content is not a readable picture: it is damaged or cut off", field=field
        ) from None
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise UnreadableDocument(
            f"content is not a readable picture: {error}", field=field
        ) from None


def _checked_pages(image: Image.Image) -> Iterator[Image.Image]:
    """Yields the pages of a picture. Raises TooLarge.

    Each page is counted only when it is reached, because a damaged TIFF may have a list of pages
    that never ends.
    """
    for number, page in enumerate(_pages(image), start=1):
        _check_size(page, number)
        yield page


def _page_at(pages: Iterator[Image.Image], index: int) -> Image.Image:
    page = next(islice(pages, index, None), None)
    if page is None:
        raise UnreadableDocument(f"the picture has no page {index + 1}", field=_SHOWN_FIELD)
    return page


def _pages(image: Image.Image) -> Iterator[Image.Image]:
    """Yields the pages of a picture.

    A photo in the format MPO, which is JPEG with further pictures, is one page: the others show the
    same scene from another side, or its depth.
    """
    if image.format == MpoImagePlugin.MpoImageFile.format:
        yield image
    else:
        yield from ImageSequence.Iterator(image)


def _check_size(page: Image.Image, number: int) -> None:
    if page.width * page.height > MAX_PICTURE_PIXELS:
        raise TooLarge(
            f"page {number} of content has {page.width} x {page.height} pixels; at most "
            f"{MAX_PICTURE_PIXELS} are allowed",
            field=_FIELD,
            limit="picture_pixels",
        )
    if number > MAX_PAGES:
        raise TooLarge(
            f"content has more than {MAX_PAGES} pages; at most {MAX_PAGES} are allowed",
            field=_FIELD,
            limit="document_pages",
        )


def _picture(page: Image.Image) -> Picture:
    """Returns a page as the recogniser needs it."""
    return np.ascontiguousarray(np.asarray(_upright(page, MAX_SIDE_PIXELS))[:, :, ::-1])


def _upright(page: Image.Image, max_side: int) -> Image.Image:
    """Returns a page in RGB: upright as its camera says, on white, and small."""
    size = (max_side, max_side)
    # Pillow itself turns pages of TIFF when they are decoded, and then forgets the orientation.
    orientation = None if page.format == "TIFF" else page.getexif().get(ExifTags.Base.Orientation)
    page.draft("RGB", size)
    if page.mode in _DEEP_MODES:
        grey = np.asarray(page).astype(np.float32)
        if grey.max(initial=0) >= _DEEP_FACTOR:
            grey /= _DEEP_FACTOR
        page = Image.fromarray(grey.clip(0, 255).astype(np.uint8))
    image = page.convert("RGBA") if page.has_transparency_data else page.convert("RGB")
    image.thumbnail(size, Image.Resampling.LANCZOS)
    if image.mode == "RGBA":
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image)
        image = white
    transposition = _TRANSPOSITIONS.get(orientation or 0)
    if transposition is not None:
        image = image.transpose(transposition)
    return image
