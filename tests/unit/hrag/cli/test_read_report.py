"""A report of reading is shown on one line, or as JSON with the names of the protos."""

import json
from dataclasses import asdict, fields

import pytest
from google.protobuf.json_format import MessageToDict

from hrag.cli.read_report import is_notable, ranges_text, report_fields, report_from, report_text
from hrag.types import LeftOut, LeftOutKind, PageUnit, ReadReport
from hrag.values.formats import DOCX
from hrag.wire.indexer import report_message

FULL = ReadReport(
    "windows-1252",
    2,
    (1, 2),
    (5, 7, 8, 9),
    (LeftOut(LeftOutKind.RUNNING_HEAD, 24, "Annual report"), LeftOut(LeftOutKind.OUTPUT, 1, "x")),
    mime_type="application/pdf",
    is_encoding_guessed=True,
    page_count=12,
    section_count=1,
)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (ReadReport(mime_type=DOCX), "docx"),
        (ReadReport("utf-8", mime_type="text/plain"), "txt"),
        (
            ReadReport("gb18030", mime_type="text/csv", table_count=1),
            "csv, read as gb18030, 1 table",
        ),
        (ReadReport(mime_type="x/y", page_count=3, page_unit=PageUnit.ROW), "x/y, 3 rows"),
        (
            ReadReport(mime_type="text/vtt", page_count=2, page_unit=PageUnit.SECOND),
            "vtt, 2 cues",
        ),
        (
            ReadReport(mime_type="image/png", page_count=1, recognised_pages=(1,)),
            "png, 1 page; text recognised in pictures",
        ),
        (
            FULL,
            (
                "pdf, read as windows-1252, 12 pages, 1 section, 2 tables; the encoding is a guess "
                "(--encoding sets it); text recognised in pictures on 2 of 12 pages: 1-2; no "
                "readable text on 4 of 12 pages: 5, 7-9; left out: 24 running heads, 1 output"
            ),
        ),
    ],
)
def test_a_report_is_one_line(report, text):
    assert report_text(report) == text


@pytest.mark.parametrize("kind", LeftOutKind)
def test_every_kind_of_part_that_is_left_out_has_a_name(kind):
    assert "left out: 2 " in report_text(ReadReport(left_out=(LeftOut(kind, 2, "x"),)))


def test_only_unusual_reports_are_notable():
    assert not is_notable(ReadReport("utf-8", page_count=3))
    assert is_notable(ReadReport("utf-16-le"))
    assert is_notable(ReadReport(unread_pages=(1,)))
    assert is_notable(ReadReport(recognised_pages=(1,)))


def test_the_fields_have_the_names_of_the_protos_and_all_fields_are_shown():
    shown = report_fields(FULL)
    names = MessageToDict(
        report_message(FULL),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    assert shown.keys() == names.keys()
    assert len(shown) == len(fields(ReadReport))
    assert (shown["page_count"], shown["encoding_guessed"]) == (12, True)


def test_a_report_survives_json():
    assert report_from(json.loads(json.dumps(asdict(FULL)))) == FULL


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((1, 2, 3, 5), "1-3, 5"),
        (tuple(range(1, 40, 2)), "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, …"),
    ],
)
def test_numbers_are_shown_as_ranges(numbers, text):
    assert ranges_text(numbers) == text
