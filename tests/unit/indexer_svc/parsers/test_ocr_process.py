"""A confined process recognises the text of scans and pictures, within its limits."""

from collections.abc import Iterator

import pytest
from PIL import Image

from hrag.types import PDF
from hrag.values.deadline import Deadline
from hrag.values.formats import JPEG, PNG, TIFF
from hrag.values.page_images import MAX_PAGE_BOXES, SpanBox
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import FormatFamily
from indexer_svc.parsers.parser_process import ParserEnded, ParserProcess
from indexer_svc.text_recognition import has_ocr_extra
from tests.support.documents import pdfs
from tests.support.documents.pictures import page_with_places, picture_file, printed

pytestmark = pytest.mark.skipif(not has_ocr_extra(), reason="the extra ocr is not installed")

MEMORY_BYTES = 2 << 30
AMPLE_BYTES = 1 << 20
LINES = ("The valve E-4711 opens at 240.9 bar.", "It was made in 2024 by the bees.")
TEXT = " ".join(LINES)


@pytest.fixture(scope="module")
def process() -> Iterator[ParserProcess]:
    process = ParserProcess(MEMORY_BYTES, FormatFamily.OCR)
    yield process
    assert process.kill() == "SIGKILL"


def read_file(
    process: ParserProcess,
    content: bytes,
    mime_type: str,
    *,
    max_pages: int = 10,
    cpu_s: float = 60.0,
    counts: list[int] | None = None,
) -> ParsedFile:
    """Sends a file to the process and returns what it answers."""
    deadline = Deadline.after(60)

    def check() -> None:
        deadline.check("reading")

    process.wait_until_ready(check)
    request = {
        "mime_type": mime_type,
        "max_text_bytes": AMPLE_BYTES,
        "keep_boilerplate": False,
        "cpu_s": cpu_s,
        "max_pages": max_pages,
    }
    on_page = [].append if counts is None else counts.append
    return process.parse(request, content, AMPLE_BYTES, check, on_page)


def test_the_process_is_confined_and_recognises_a_picture(process):
    counts: list[int] = []
    parsed = read_file(process, picture_file(printed(*LINES), "PNG"), PNG, counts=counts)
    assert process.is_confined
    assert parsed.text == TEXT
    assert [page.is_recognised for page in parsed.pages] == [True]
    assert counts == [0]


def test_a_photo_of_several_views_is_recognised(process):
    views = [printed(*LINES).convert("RGB")] * 2
    content = picture_file(views[0], "MPO", save_all=True, append_images=views[1:])
    assert read_file(process, content, JPEG).text == TEXT


@pytest.mark.parametrize("degrees", [90, 180, 270, 2])
def test_a_picture_is_recognised_in_any_direction(process, degrees):
    image = printed(*LINES).rotate(degrees, expand=True, fillcolor=255)
    assert read_file(process, picture_file(image, "JPEG"), JPEG).text == TEXT


@pytest.mark.parametrize("degrees", [0, 180])
def test_a_line_that_seems_to_be_upside_down_is_read_as_the_other_lines(process, degrees):
    """The model of RapidOCR that finds lines upside down takes the last line for one."""
    lines = (*LINES, "| 50,000 x 384, 50 | 206 us (418) | 80 u")
    image = printed(*lines).rotate(degrees)
    text = read_file(process, picture_file(image, "PNG"), PNG).text
    assert text.replace(" ", "").endswith("50|206us(418)|80u")


def test_only_so_many_pages_of_a_file_are_recognised(process):
    blank = Image.new("L", (560, 140), 255)
    pages = [blank, printed("The last page")]
    content = picture_file(printed(*LINES), "TIFF", save_all=True, append_images=pages)
    parsed = read_file(process, content, TIFF, max_pages=2)
    assert parsed.text == TEXT
    assert parsed.report.recognised_pages == (1,)
    assert parsed.report.unread_pages == (3,)


def test_a_page_of_a_pdf_that_is_a_scan_is_recognised(process):
    counts: list[int] = []
    scan = read_file(process, picture_file(printed(*LINES), "PDF"), PDF, counts=counts)
    assert scan.text == TEXT
    assert scan.report.recognised_pages == (1,)
    text = read_file(process, pdfs.pdf_of(["This page has text"]), PDF, counts=counts)
    assert text.text == "This page has text"
    assert text.report.recognised_pages == text.report.unread_pages == ()
    assert counts == [0]


SENTENCES = (
    "Valves hold the pressure of the cooling circuit and are closed by hand in the evening.",
    "It will fill 11 jugs.",
    "The gasket of pump 4 needs a torque of 40, which is measured every four weeks by two people.",
)
PRINTED, WORDS = page_with_places(" ".join(SENTENCES), "Filters are washed with water.")


def _pdf_file(image: Image.Image) -> bytes:
    return picture_file(image, "PDF", resolution=100)


def _second_page(image: Image.Image) -> bytes:
    blank = Image.new("L", (300, 200), 255)
    return picture_file(blank, "TIFF", save_all=True, append_images=[image.copy()])


def _lying_photo(image: Image.Image) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return picture_file(image.transpose(Image.Transpose.ROTATE_90), "JPEG", exif=exif, quality=95)


def _sideways(image: Image.Image) -> bytes:
    return picture_file(image.transpose(Image.Transpose.ROTATE_270), "PNG")


@pytest.mark.parametrize(
    ("mime_type", "file", "index", "is_sideways"),
    [
        (PNG, lambda image: picture_file(image, "PNG"), 0, False),
        (PNG, _sideways, 0, True),
        (TIFF, _second_page, 1, False),
        (JPEG, _lying_photo, 0, False),
        (PDF, _pdf_file, 0, False),
    ],
)
def test_the_boxes_of_a_sentence_cover_its_recognised_words_and_no_other_line(
    process, mime_type, file, index, is_sideways
):
    """Each sentence, in files of all kinds, also if the page lies on its side."""
    content = file(PRINTED)
    text = " ".join([*SENTENCES, "Filters are washed with water."])
    spans = [(text.index(sentence), text.index(sentence) + len(sentence)) for sentence in SENTENCES]
    deadline = Deadline.after(60)

    def check() -> None:
        deadline.check("reading")

    process.wait_until_ready(check)
    request = {"mime_type": mime_type, "cpu_s": 60.0}
    recognise = {"max_pages": 1, "recognised_page": index}
    found = process.page_words(request | recognise, content, check, lambda _count: None)
    arguments = {"index": index, "dpi": 72, "text": text, "spans": spans, "max_png_bytes": 1 << 22}
    show = {"page": arguments | {"words": found.as_json()}}
    image = process.show_page(request | show, content, 1 << 22, MAX_PAGE_BOXES, check)
    words = iter(WORDS)
    for number, sentence in enumerate(SENTENCES):
        lines: dict[int, tuple[float, float]] = {}
        for _, line, left, right in (next(words) for _ in sentence.split()):
            lines[line] = lines.get(line, (left, right))[0], right
        boxes = [_on_upright(box, is_sideways) for box in image.boxes if box.span == number]
        assert len(boxes) == len(lines)
        for (left, top, right, bottom), (line, edges) in zip(boxes, lines.items(), strict=True):
            assert left <= edges[0] + 1
            assert right >= edges[1] - 1
            assert (left, right) == pytest.approx(edges, abs=22)
            # The letters of the line are in the middle of the box, and no others are in it.
            assert 22 + 44 * line < top < 38 + 44 * line
            assert 52 + 44 * line < bottom < 76 + 44 * line


def _on_upright(box: SpanBox, is_sideways: bool) -> tuple[float, float, float, float]:
    """Returns a box in pixels of PRINTED."""
    width, height = PRINTED.size
    left, top, right, bottom = box[1:]
    if is_sideways:
        left, top, right, bottom = top, 1 - right, bottom, 1 - left
    return left * width, top * height, right * width, bottom * height


def test_a_page_that_takes_too_much_processor_time_ends_the_process():
    process = ParserProcess(MEMORY_BYTES, FormatFamily.OCR)
    with pytest.raises(ParserEnded, match="SIGPROF"):
        read_file(process, picture_file(printed(*LINES), "PNG"), PNG, cpu_s=0.01)
    process.kill()
