"""Pictures, and PDFs with unread pages, are parsed with text recognition if there is one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hrag.errors import BlankDocument, InvalidArgument, TooBusy, TooLarge, UnreadableDocument
from hrag.types import PDF, Document
from hrag.values.formats import JPEG, PNG, TIFF
from hrag.values.read_report import PageUnit, ReadReport
from hrag.values.tree import PageSpan
from indexer_svc.extract import Extracted, extract
from indexer_svc.parsers.parsed_file import PageRange, ParsedFile
from indexer_svc.text_recognition import CallRecognition

MAX_BYTES = 1000
ADVICE = "install something"
# A PDF of three pages: the first has text, the others are pictures.
READ = ParsedFile(
    "one\n\n\n\n",
    (PageRange(0, 3), PageRange(5, 5), PageRange(7, 7)),
    report=ReadReport(table_count=1, unread_pages=(2, 3)),
)
RECOGNISED = ParsedFile(
    "one\n\ntwo\n\n",
    (PageRange(0, 3), PageRange(5, 8, is_recognised=True), PageRange(10, 10)),
    report=ReadReport(table_count=1, recognised_pages=(2,), unread_pages=(3,)),
)
SCAN = replace(READ, text="\n\n\n\n", pages=(PageRange(0, 0), PageRange(2, 2), PageRange(4, 4)))
SCAN = replace(SCAN, report=ReadReport(unread_pages=(1, 2, 3)))


def always(outcome: ParsedFile | Exception) -> Callable[[bytes, str, int, bool], ParsedFile]:
    """Returns a parser that returns or raises `outcome` for each file."""

    def parse(_content: bytes, _mime_type: str, max_bytes: int, _keep: bool) -> ParsedFile:
        assert max_bytes == MAX_BYTES
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return parse


def never(*_: object) -> ParsedFile:
    raise AssertionError("this parser must not be called")


def pages_of(extracted: Extracted) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Returns the recognised pages and the unread pages of the report, and its advice."""
    report = extracted.report
    return report.recognised_pages, report.unread_pages, report.advice


def document(mime_type: str = PDF) -> Document:
    return Document(b"file", mime_type=mime_type)


def test_a_pdf_whose_pages_are_all_read_is_parsed_once():
    for read in (replace(READ, report=ReadReport()), ParsedFile("text")):
        extracted = extract(document(), MAX_BYTES, always(read), CallRecognition(never, ADVICE))
        assert pages_of(extracted) == ((), (), "")


def test_without_text_recognition_the_report_has_the_unread_pages_and_the_advice():
    extracted = extract(document(), MAX_BYTES, always(READ), CallRecognition(None, ADVICE))
    assert pages_of(extracted) == ((), (2, 3), ADVICE)
    assert extracted.report.table_count == 1
    default = extract(document(), MAX_BYTES, always(READ)).report.advice
    assert "pip install '.[ocr]'" in default or "HRAG_OCR_MAX_PAGES" in default


def test_unread_pages_are_recognised_and_the_others_remain_in_the_report():
    recognition = CallRecognition(always(RECOGNISED), ADVICE)
    extracted = extract(document(), MAX_BYTES, always(READ), recognition)
    assert extracted.parsed.text == "one\n\ntwo\n\n"
    assert extracted.parsed.pages == (
        PageSpan(1, 0, 3),
        PageSpan(2, 5, 8, is_recognised=True),
        PageSpan(3, 10, 10),
    )
    assert pages_of(extracted) == ((2,), (3,), ADVICE)


@pytest.mark.parametrize("error", [UnreadableDocument("it crashed"), TooLarge("it took long")])
def test_if_recognition_fails_the_text_of_the_other_pages_is_kept(error):
    recognition = CallRecognition(always(error), ADVICE)
    extracted = extract(document(), MAX_BYTES, always(READ), recognition)
    assert extracted.parsed.text == READ.text
    assert pages_of(extracted) == ((), (2, 3), f"text recognition failed: {error.message}")
    with pytest.raises(type(error), match=error.message):
        extract(document(), MAX_BYTES, always(SCAN), recognition)


def test_an_error_that_goes_away_is_raised_so_that_the_client_can_try_again():
    with pytest.raises(TooBusy):
        extract(document(), MAX_BYTES, always(READ), CallRecognition(always(TooBusy("")), ADVICE))


def test_a_scan_without_recognition_is_refused_with_the_count_of_its_pages_and_the_advice():
    with pytest.raises(BlankDocument) as caught:
        extract(document(), MAX_BYTES, always(SCAN), CallRecognition(None, ADVICE))
    assert caught.value.message == (
        "content is a PDF without readable text on any of its 3 pages; 3 pages are pictures or "
        f"cannot be mapped to characters: {ADVICE}"
    )
    one = replace(SCAN, report=ReadReport(unread_pages=(2,)))
    with pytest.raises(BlankDocument, match="1 page is a picture or cannot be mapped"):
        extract(document(), MAX_BYTES, always(one), CallRecognition(None, ADVICE))
    nothing = replace(SCAN, report=ReadReport())
    with pytest.raises(BlankDocument, match=r"on any of its 3 pages$"):
        extract(document(), MAX_BYTES, always(nothing), CallRecognition(never, ADVICE))


@pytest.mark.parametrize("mime_type", [PNG, JPEG, TIFF])
def test_a_picture_is_parsed_with_recognition_only(mime_type):
    picture = ParsedFile("text", (PageRange(0, 4, is_recognised=True),))
    extracted = extract(
        document(mime_type), MAX_BYTES, never, CallRecognition(always(picture), ADVICE)
    )
    assert extracted.parsed.pages == (PageSpan(1, 0, 4, is_recognised=True),)
    with pytest.raises(InvalidArgument, match=f"a picture, whose text .* {ADVICE}") as caught:
        extract(document(mime_type), MAX_BYTES, never, CallRecognition(None, ADVICE))
    assert caught.value.field == "mime_type"
    blank = always(ParsedFile("", (PageRange(0, 0),)))
    with pytest.raises(BlankDocument, match=r"a picture without readable text$"):
        extract(document(mime_type), MAX_BYTES, never, CallRecognition(blank, ADVICE))


@pytest.mark.parametrize(
    ("unit", "numbers"),
    [(PageUnit.PAGE, (1, 7)), (PageUnit.ROW, (1, 7)), (PageUnit.SECOND, (1, 7))],
)
def test_numbers_of_rows_and_seconds_are_kept_with_their_unit(unit, numbers):
    """The number 0 is the position of the page; a recording's first second also is 1."""
    read = ParsedFile("one two", (PageRange(0, 4, 0), PageRange(4, 7, 7)), page_unit=unit)
    extracted = extract(document(), MAX_BYTES, always(read))
    assert extracted.parsed.page_unit is unit
    assert tuple(page.number for page in extracted.parsed.pages) == numbers


def test_two_times_in_the_first_second_of_a_recording_have_the_same_number():
    read = ParsedFile("ab", (PageRange(0, 1), PageRange(1, 2)), page_unit=PageUnit.SECOND)
    pages = extract(document(), MAX_BYTES, always(read)).parsed.pages
    assert [page.number for page in pages] == [1, 1]
