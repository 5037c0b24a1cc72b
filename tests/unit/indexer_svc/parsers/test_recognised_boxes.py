"""The boxes of recognised text are where a reader sees it, however the page lies on its picture."""

import io
import math

import numpy as np
import pytest
from PIL import Image

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.page_images import MAX_DPI
from indexer_svc.parsers.pdf.recognised_boxes import recognised_boxes, recognised_words
from indexer_svc.parsers.picture import page_image, page_words
from indexer_svc.parsers.recognised_words import RecognisedWords
from indexer_svc.parsers.recognition import FoundLine, PageRecogniser, upright_page
from tests.unit.indexer_svc.parsers.test_picture import dark_corner, file_of, image_of

MAX_PNG = 1 << 22
WIDTH, HEIGHT = 1200, 1700
LEFT, RIGHT = (100, 560), (640, 1100)
# Each column has a sentence from the middle of a line to the middle of the next but one.
COLUMNS = (
    (
        "Words come before it. The first",
        "sentence is here, and it goes on to",
        "this place. Then other words.",
    ),
    (
        "Nothing of it is in this column",
        "because it has a text that is about",
        "another thing. It ends.",
    ),
)
SENTENCE = "The first sentence is here, and it goes on to this place."
TEXT = " ".join(line for column in COLUMNS for line in column)
PITCH, LINE_HEIGHT, TOP = 45, 36, 200


def found_lines(turn: int, degrees: float) -> list[FoundLine]:
    """Returns the lines of both columns, from top to bottom, as they are found on the picture."""
    lines = []
    for row in range(3):
        for (left, right), column in zip((LEFT, RIGHT), COLUMNS, strict=True):
            top = TOP + PITCH * row
            box = ((left, top), (right, top), (right, top + LINE_HEIGHT), (left, top + LINE_HEIGHT))
            corners = tuple(on_picture(corner, turn, degrees) for corner in box)
            lines.append(FoundLine(column[row], corners, turn, 0.9))
    return lines


def on_picture(point: tuple[float, float], turn: int, degrees: float) -> tuple[float, float]:
    """Returns where a point of the upright page is on the picture of a page that was turned."""
    x, y = point
    angle = math.radians(degrees)
    x, y = x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)
    return {
        0: (x, y),
        90: (y, WIDTH - x),
        180: (WIDTH - x, HEIGHT - y),
        270: (HEIGHT - y, x),
    }[turn]


def words_on(turn: int, degrees: float) -> RecognisedWords:
    size = (HEIGHT, WIDTH) if turn in (90, 270) else (WIDTH, HEIGHT)
    return recognised_words(upright_page(found_lines(turn, degrees), *size))


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize("degrees", [0.0, 1.5, -3.0, 8.0])
def test_boxes_cover_a_sentence_and_no_other_line(turn: int, degrees: float) -> None:
    words = words_on(turn, degrees)
    start = TEXT.index(SENTENCE)
    boxes = list(recognised_boxes(words, TEXT, [(start, start + len(SENTENCE))]))
    assert len(boxes) >= 3
    width, height = (HEIGHT, WIDTH) if turn in (90, 270) else (WIDTH, HEIGHT)

    def is_covered(x: float, y: float) -> bool:
        x, y = on_picture((x, y), turn, degrees)
        return any(
            box.left * width - 1 <= x <= box.right * width + 1
            and box.top * height - 1 <= y <= box.bottom * height + 1
            for box in boxes
        )

    advances = [(LEFT[1] - LEFT[0]) / len(line) for line in COLUMNS[0]]
    begins = LEFT[0] + advances[0] * COLUMNS[0][0].index("The")
    ends = LEFT[0] + advances[2] * (COLUMNS[0][2].index("place.") + len("place."))
    middles = [TOP + PITCH * row + LINE_HEIGHT / 2 for row in range(-1, 4)]
    for x in range(LEFT[0], LEFT[1], 7):
        assert is_covered(x, middles[1]) or x < begins
        assert is_covered(x, middles[2])
        assert is_covered(x, middles[3]) or x > ends
        assert not is_covered(x, middles[0])
        assert not is_covered(x, middles[4])
        assert not is_covered(x, middles[1]) or x > begins - 20
        assert not is_covered(x, middles[3]) or x < ends + 20
    for x in range(*RIGHT, 7):
        assert not any(is_covered(x, middle) for middle in middles)


def test_text_that_was_recognised_otherwise_has_no_box() -> None:
    text = "The valve opens at a pressure of forty bar, and a column of mercury shows it."
    assert not list(recognised_boxes(words_on(0, 0.0), text, [(0, len(text))]))


def test_chinese_and_characters_of_different_widths_are_found() -> None:
    line = FoundLine("猫睡觉。iiiWW", ((0, 0), (900, 0), (900, 40), (0, 40)), 0, 0.9)
    edges = (0.0, 0.2, 0.4, 0.6, 0.7, 0.72, 0.74, 0.76, 0.88, 1.0)
    words = recognised_words(upright_page([line._replace(edges=edges)], 1000, 500))
    (box,) = recognised_boxes(words, line.text, [(1, 3)])
    assert (box.left * 1000, box.right * 1000) == pytest.approx((180, 540), abs=7)


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        *[(mode, "PNG") for mode in ("1", "L", "P", "RGB", "RGBA", "LA", "I;16")],
        *[(mode, "JPEG") for mode in ("L", "CMYK")],
        *[(mode, "TIFF") for mode in ("1", "RGB", "I;16", "F")],
    ],
)
def test_pictures_of_every_kind_are_shown(mode: str, form: str) -> None:
    image = image_of("L") if mode in ("I;16", "F") else image_of(mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    elif mode == "F":
        image = Image.fromarray(np.asarray(image).astype(np.float32))
    shown = page_image(file_of(image, form), 0, 36, "", [], MAX_PNG)
    assert (shown.width_pixels, shown.height_pixels) == (421, 281)
    assert (shown.width_points, shown.height_points) == (842, 562)
    decoded = Image.open(io.BytesIO(shown.png))
    assert decoded.size == (421, 281)
    assert dark_corner(np.asarray(decoded.convert("RGB"))) == "upper left"


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("size", [(60, 40), (40, 60), (40, 40)])
@pytest.mark.parametrize(("orientation", "corner"), [(3, "lower right"), (6, "upper right")])
def test_a_picture_is_shown_and_recognised_upright(
    form: str, orientation: int, corner: str, size: tuple[int, int]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = file_of(image_of(size=size), form, exif=exif)
    pictures: list[np.ndarray] = []
    recogniser = PageRecogniser(lambda picture: pictures.append(picture) or (), 1)
    words = page_words(content, 0, recogniser)
    shown = page_image(content, 0, 36, "", [], MAX_PNG, words)
    decoded = np.asarray(Image.open(io.BytesIO(shown.png)).convert("RGB"))
    assert dark_corner(decoded) == dark_corner(pictures[0]) == corner
    assert decoded.shape[0] / decoded.shape[1] == pytest.approx(
        pictures[0].shape[0] / pictures[0].shape[1], abs=0.01
    )
    assert decoded.shape[:2] == (shown.height_pixels, shown.width_pixels)


def test_a_transparent_picture_is_shown_on_white() -> None:
    shown = page_image(file_of(Image.new("RGBA", (60, 40), (0, 0, 0, 0))), 0, 36, "", [], MAX_PNG)
    assert np.asarray(Image.open(io.BytesIO(shown.png))).min() == 255


def test_each_page_of_a_tiff_is_shown() -> None:
    blank = Image.new("RGB", (60, 40), "white")
    content = file_of(blank, "TIFF", save_all=True, append_images=[image_of(), blank])
    darkest = [
        np.asarray(Image.open(io.BytesIO(page_image(content, at, 36, "", [], MAX_PNG).png))).min()
        for at in range(3)
    ]
    assert darkest == [255, 0, 255]
    with pytest.raises(UnreadableDocument, match="no page 4"):
        page_image(content, 3, 36, "", [], MAX_PNG)


def test_every_picture_is_shown_at_the_highest_resolution() -> None:
    """A square one has the most pixels, because the longer side of each counts as that of A4."""
    shown = page_image(file_of(Image.new("L", (9, 9))), 0, MAX_DPI, "", [], MAX_PNG)
    assert (shown.width_pixels, shown.height_pixels) == (3508, 3508)


def test_a_picture_beyond_a_limit_is_refused_with_the_number() -> None:
    square = file_of(Image.new("L", (2000, 2000)))
    with pytest.raises(TooLarge, match=r"21,883,684 pixels; at most 12,500,000 are allowed"):
        page_image(square, 0, 400, "", [], MAX_PNG)
    with pytest.raises(TooLarge, match=r"at most 10 are allowed \(HRAG_MAX_REPLY_BYTES\)"):
        page_image(square, 0, 36, "", [], 10)
    whole = file_of(image_of("RGB", (300, 200)))
    with pytest.raises(UnreadableDocument, match="content is not a readable picture"):
        page_image(whole[: len(whole) // 2], 0, 36, "", [], MAX_PNG)
