"""Pictures of pages are decoded within limits, upright and on white; their text is recognised."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.document_limits import MAX_PICTURE_PIXELS
from hrag.values.read_report import ReadReport
from indexer_svc.parsers.parsed_file import PageRange
from indexer_svc.parsers.picture import parse_picture
from indexer_svc.parsers.recognition import FoundLine, PageRecogniser

AMPLE_BYTES = 1 << 20


class FakeRecogniser:
    """Finds one line on each picture that has a dark pixel; records the pictures."""

    def __init__(self) -> None:
        self.pictures: list[np.ndarray] = []

    def __call__(self, picture: np.ndarray) -> list[FoundLine]:
        self.pictures.append(picture)
        if picture.min() > 128:
            return []
        word = ("one", "two", "three")[len(self.pictures) - 1]
        return [FoundLine(word, ((0, 0), (9, 0), (9, 9), (0, 9)), 0, 1.0)]


@pytest.fixture
def recognise() -> FakeRecogniser:
    return FakeRecogniser()


def image_of(mode: str = "RGB", size: tuple[int, int] = (60, 40)) -> Image.Image:
    """Returns a light picture with a dark upper left quarter."""
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).rectangle((0, 0, size[0] // 2 - 1, size[1] // 2 - 1), fill=0)
    return image.convert(mode)


def file_of(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def dark_corner(picture: np.ndarray) -> str:
    """Returns where the dark quarter of a picture is, for example `upper left`."""
    height, width = picture.shape[:2]
    dark = picture.min(axis=2) < 128
    rows = {"upper": dark[: height // 2], "lower": dark[height // 2 :]}
    row = max(rows, key=lambda name: rows[name].sum())
    columns = {"left": rows[row][:, : width // 2], "right": rows[row][:, width // 2 :]}
    return f"{row} {max(columns, key=lambda name: columns[name].sum())}"


def test_a_photo_of_several_views_is_one_page(recognise):
    views = [image_of(), image_of()]
    content = file_of(views[0], "MPO", save_all=True, append_images=views[1:])
    parsed = parse_picture(content, AMPLE_BYTES, PageRecogniser(recognise, 5))
    assert parsed.text == "one"


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        *[(mode, "PNG") for mode in ("1", "L", "P", "RGB", "RGBA", "LA", "I;16")],
        *[(mode, "JPEG") for mode in ("L", "RGB", "CMYK")],
        *[(mode, "TIFF") for mode in ("1", "L", "RGB", "CMYK", "I;16", "F")],
    ],
)
def test_pictures_of_every_kind_are_decoded(recognise, mode, form):
    image = image_of("L") if mode in ("I;16", "F") else image_of(mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    elif mode == "F":
        image = Image.fromarray(np.asarray(image).astype(np.float32))
    parsed = parse_picture(file_of(image, form), AMPLE_BYTES, PageRecogniser(recognise, 5))
    assert parsed.text == "one"
    assert parsed.pages == (PageRange(0, 3, 0, is_recognised=True),)
    assert parsed.report == ReadReport(recognised_pages=(1,))
    (picture,) = recognise.pictures
    assert (picture.shape, picture.dtype) == ((40, 60, 3), np.uint8)
    assert dark_corner(picture) == "upper left"


def test_a_transparent_picture_is_on_white(recognise):
    image = Image.new("RGBA", (60, 40), (0, 0, 0, 0))
    parse_picture(file_of(image), AMPLE_BYTES, PageRecogniser(recognise, 5))
    assert recognise.pictures[0].min() == 255


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize(
    ("orientation", "corner"),
    [
        (1, "upper left"),
        (3, "lower right"),
        (6, "upper right"),
        (8, "lower left"),
        (99, "upper left"),
    ],
)
def test_a_picture_is_turned_as_its_camera_says(recognise, form, orientation, corner):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = file_of(image_of(), form, exif=exif)
    parse_picture(content, AMPLE_BYTES, PageRecogniser(recognise, 5))
    assert dark_corner(recognise.pictures[0]) == corner


def test_the_pages_of_a_tiff_are_numbered_and_pages_beyond_the_limit_are_reported(recognise):
    blank = Image.new("RGB", (60, 40), "white")
    content = file_of(image_of(), "TIFF", save_all=True, append_images=[blank, image_of(), blank])
    parsed = parse_picture(content, AMPLE_BYTES, PageRecogniser(recognise, 3))
    assert parsed.text == "one\n\nthree"
    assert [page.is_recognised for page in parsed.pages] == [True, False, True, False]
    assert parsed.report == ReadReport(recognised_pages=(1, 3), unread_pages=(4,))


def test_a_large_picture_is_made_smaller_before_it_is_recognised(recognise):
    for form in ("JPEG", "PNG", "TIFF"):
        content = file_of(image_of("L", (4000, 2000)), form)
        parse_picture(content, AMPLE_BYTES, PageRecogniser(recognise, 5))
    assert [picture.shape for picture in recognise.pictures] == [(1000, 2000, 3)] * 3


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(recognise):
    side = int(MAX_PICTURE_PIXELS**0.5) + 1
    # Only the header says that the picture is so large. The data that follows is that of a small
    # picture.
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    header += struct.pack(">I", zlib.crc32(header))
    content = file_of(image_of("L"))
    start = content.index(b"IHDR")
    content = content[:start] + header + content[start + len(header) :]
    with pytest.raises(TooLarge, match=rf"page 1 of content has {side} x {side} pixels"):
        parse_picture(content, AMPLE_BYTES, PageRecogniser(recognise, 5))
    assert not recognise.pictures


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
def test_a_damaged_picture_is_refused_with_the_reason(recognise, form):
    whole = file_of(image_of("RGB", (300, 200)), form)
    for content in (whole[: len(whole) // 2], whole[:20], b"", b"\x00" * 100, b"GIF89a" + whole):
        with pytest.raises(UnreadableDocument, match="content is not a readable picture"):
            parse_picture(content, AMPLE_BYTES, PageRecogniser(recognise, 5))


def test_a_tiff_whose_list_of_pages_never_ends_is_refused(recognise):
    content = bytearray(file_of(image_of("1"), "TIFF"))
    first = struct.unpack_from("<I", content, 4)[0]
    entries = struct.unpack_from("<H", content, first)[0]
    struct.pack_into("<I", content, first + 2 + 12 * entries, first)
    recogniser = PageRecogniser(recognise, 2)
    try:
        parsed = parse_picture(bytes(content), AMPLE_BYTES, recogniser)
    except (UnreadableDocument, TooLarge):
        return
    assert len(recognise.pictures) <= 2
    assert len(parsed.pages) <= 2


def test_too_much_text_is_refused(recognise):
    with pytest.raises(TooLarge, match="HRAG_MAX_DOCUMENT_BYTES"):
        parse_picture(file_of(image_of()), 2, PageRecogniser(recognise, 5))
