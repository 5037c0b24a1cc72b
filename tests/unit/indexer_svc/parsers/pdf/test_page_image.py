"""A page is shown as a PNG, and the boxes of a span cover its printed lines and no other line."""

import struct
import zlib

import pytest

from hrag.errors import InvalidArgument, TooLarge, UnreadableDocument
from indexer_svc.parsers.pdf import characters, page_image, parse_pdf
from indexer_svc.parsers.pdf.span_boxes import span_boxes
from indexer_svc.parsers.recognised_words import PrintedWord, RecognisedWords
from tests.support.documents.pdfs import broken_pdf, pdf_of, pdf_of_streams, shown_at

LEFT = (
    "The quick brown fox jumps over the hyphen-",
    "ated dog. Then it sleeps in the garden all day",
    "and dreams of rabbits that run away.",
)
RIGHT = (
    "On the right there is another column with its",
    "own sentences. Nothing here belongs to the left",
    "column at all.",
)
COLUMNS = b"".join(
    shown_at(x, 700 - 14 * index, line)
    for x, lines in ((50, LEFT), (320, RIGHT))
    for index, line in enumerate(lines)
)
SENTENCE = "Then it sleeps in the garden all day and dreams of rabbits that run away."
MAX_PNG = 1 << 22
# The colour types of PNG.
GREY, RGB = 0, 2


def shown(pdf: bytes, *parts: str, page: int = 0, dpi: float = 72):
    """Returns the image of a page, and the boxes of parts of its text in points."""
    parsed = parse_pdf(pdf, 1 << 20)
    place = parsed.pages[page]
    text = parsed.text[place.char_start : place.char_end]
    spans = [(text.index(part), text.index(part) + len(part)) for part in parts]
    image = page_image(pdf, page, dpi, text, spans, MAX_PNG)
    sides = (image.width_points, image.height_points) * 2
    boxes = [
        (box.span, *(round(share * side) for share, side in zip(box[1:], sides, strict=True)))
        for box in image.boxes
    ]
    return image, boxes


def pixels(png: bytes, colour: int = GREY) -> tuple[int, int, list[bytes]]:
    """Decodes a PNG that `page_image` has made; returns its width, its height and its rows.

    `colour` is the colour type that the PNG must have.
    """
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length)[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += length + 12
    width, height, *kind = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert kind == [8, colour]
    raw, size = zlib.decompress(chunks[b"IDAT"]), {GREY: 1, RGB: 3}[colour] * width + 1
    assert len(raw) == size * height
    return width, height, [raw[row * size + 1 : (row + 1) * size] for row in range(height)]


def ink(rows: list[bytes], box: tuple[float, ...]) -> int:
    """Returns how many dark pixels lie in a box in pixels."""
    _, left, top, right, bottom = box
    part = [row[int(left) : int(right)] for row in rows[int(top) : int(bottom)]]
    return sum(value < 128 for row in part for value in row)


def test_a_page_in_colour_keeps_its_colours():
    image, _ = shown(pdf_of_streams([b"1 0 0 rg 0 800 40 42 re f " + COLUMNS]))
    width, _, rows = pixels(image.png, RGB)
    assert rows[2][:3] == b"\xff\0\0"
    assert rows[2][3 * width - 3 :] == b"\xff\xff\xff"


def test_the_image_has_the_resolution_that_was_asked_for():
    for dpi, size in ((72, (595, 842)), (36, (298, 421)), (144, (1190, 1684))):
        image, _ = shown(pdf_of(["Some text."]), dpi=dpi)
        assert (image.width_pixels, image.height_pixels) == size
        assert (image.width_points, image.height_points) == (595, 842)
        assert pixels(image.png)[:2] == size


def test_a_sentence_in_a_column_has_a_box_for_each_of_its_lines():
    _, boxes = shown(pdf_of_streams([COLUMNS]), SENTENCE, "Nothing here belongs to the left column")
    assert boxes == [
        (0, 94, 147, 250, 158),
        (0, 50, 161, 212, 172),
        (1, 392, 147, 531, 158),
        (1, 320, 161, 352, 172),
    ]


def test_a_hyphenated_word_is_found_on_both_lines():
    _, boxes = shown(pdf_of_streams([COLUMNS]), "hyphenated")
    assert boxes == [(0, 211, 133, 242, 144), (0, 50, 147, 69, 158)]


@pytest.mark.parametrize(
    ("entries", "first", "second"),
    [
        (b"/Rotate 90", (684, 94, 696, 250), (670, 50, 682, 212)),
        (b"/Rotate 180", (345, 684, 500, 696), (383, 670, 545, 682)),
        (b"/Rotate 270", (146, 345, 158, 500), (160, 383, 172, 545)),
        (b"/CropBox [40 600 580 760]", (54, 64, 210, 76), (10, 78, 172, 90)),
        (b"/Rotate 90 /CropBox [40 600 580 760]", (84, 54, 96, 210), (70, 10, 82, 172)),
    ],
)
def test_the_boxes_are_where_a_reader_sees_the_text(entries, first, second):
    """Also on rotated and cropped pages: the boxes contain all ink of the sentence."""
    image, boxes = shown(pdf_of_streams([COLUMNS], entries), SENTENCE)
    for box, expected in zip(boxes, (first, second), strict=True):
        assert all(abs(one - other) <= 1 for one, other in zip(box[1:], expected, strict=True))
    _, _, rows = pixels(image.png)
    assert all(ink(rows, box) > 100 for box in boxes)


def test_a_span_of_a_table_has_the_boxes_of_its_cells():
    cells = [("Name", "Price", "Stock"), ("Apples", "120", "7"), ("Pears", "340", "19")]
    rules = b"".join(
        b"%d %d m %d %d l S\n" % rule
        for rule in [
            *((50, 700 - 20 * row, 350, 700 - 20 * row) for row in range(4)),
            *((50 + 100 * column, 700, 50 + 100 * column, 640) for column in range(4)),
        ]
    )
    text = b"".join(
        shown_at(55 + 100 * column, 686 - 20 * row, cell)
        for row, line in enumerate(cells)
        for column, cell in enumerate(line)
    )
    _, boxes = shown(pdf_of_streams([rules + text]), "Pears", "340")
    assert [(box[0], box[1], box[2] // 10) for box in boxes] == [(0, 55, 18), (1, 155, 18)]


def test_equal_sentences_on_a_page_are_told_apart():
    lines = ["The cat sat.", "Other words follow.", "The cat sat.", "The end."]
    _, boxes = shown(pdf_of(["\n".join(lines)]), "Other words follow. The cat sat.")
    assert [box[2] // 14 for box in boxes] == [boxes[0][2] // 14, boxes[0][2] // 14 + 1]


def test_what_is_not_printed_has_no_box():
    words = [PrintedWord("printed", (0, 0, 10, 10), 0)]
    assert span_boxes("never was this", [(0, 14)], words) == [[]]
    assert span_boxes("", [(0, 0)], words) == [[]]


def test_a_page_of_equal_words_takes_no_time_beyond_proportion():
    words = [PrintedWord("a", (n, 0, n + 1, 10), n // 50) for n in range(15_000)]
    text = "a " * 15_000
    assert span_boxes(text, [(0, 100)], words) == [[]]


def test_chinese_is_found_by_its_characters():
    words = [
        PrintedWord("猫睡觉。它", (0, 0, 50, 10), 0),
        PrintedWord("们喜欢鱼。", (0, 20, 50, 30), 1),
    ]
    text = "猫睡觉。它们喜欢鱼。"
    assert span_boxes(text, [(4, 10)], words) == [[(40, 0, 50, 10), (0, 20, 50, 30)]]


def test_a_page_that_cannot_be_shown_is_refused():
    pdf = pdf_of(["Only one page."])
    with pytest.raises(UnreadableDocument, match="has 1 pages, and no page 4"):
        page_image(pdf, 3, 72, "", [], MAX_PNG)
    for content in (broken_pdf(), b"no PDF"):
        with pytest.raises(UnreadableDocument):
            page_image(content, 0, 72, "", [], MAX_PNG)


def test_an_image_beyond_a_limit_is_refused_with_the_number():
    with pytest.raises(TooLarge, match=r"12,500,000 are allowed; ask for a lower dpi"):
        page_image(pdf_of_streams([COLUMNS]), 0, 400, "", [], MAX_PNG)
    with pytest.raises(TooLarge, match=r"at most 1,000 are allowed \(HRAG_MAX_REPLY_BYTES\)"):
        page_image(pdf_of_streams([COLUMNS]), 0, 72, "", [], 1_000)


def test_a_page_with_too_many_boxes_is_refused_with_the_number():
    words = [PrintedWord(f"w{n}", (1, n, 9, n + 1), n) for n in range(250)]
    text = " ".join(word.text for word in words)
    found = RecognisedWords(tuple(words), 0, 0.0, 10.0, 250.0)
    pdf = pdf_of(["Only one page."])
    with pytest.raises(InvalidArgument, match=r"16,000 boxes on the page; at most 12,000 are") as e:
        page_image(pdf, 0, 72, text, [(0, len(text))] * 64, MAX_PNG, found)
    assert e.value.field == "spans"


def test_a_page_with_too_much_text_has_no_boxes(monkeypatch):
    """The places of its characters are not read, so they must not be guessed."""
    monkeypatch.setattr(characters, "MAX_PAGE_CHARS", 100)
    _, boxes = shown(pdf_of_streams([COLUMNS]), "The quick brown fox")
    assert boxes == []


def test_a_page_of_a_long_file_is_shown_without_reading_the_others():
    pdf = pdf_of([f"Page {number} says something." for number in range(160)])
    image, boxes = shown(pdf, "Page 159 says something.", page=159)
    assert len(boxes) == 1
    assert image.width_pixels == 595
