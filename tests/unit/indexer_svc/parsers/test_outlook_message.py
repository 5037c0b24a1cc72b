"""An Outlook message becomes its body, its attachments as sections, and metadata."""

import struct
from datetime import UTC, datetime, timedelta

import pytest

from hrag.errors import InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.outlook_message import parse_outlook_message
from indexer_svc.parsers.parsed_file import ParsedFile
from tests.support.documents.messages import msg_file
from tests.support.documents.ole_files import ole_archive

AMPLE_BYTES = 1 << 20
SUBJECT, HEADERS, BODY, HTML, RTF = 0x0037, 0x007D, 0x1000, 0x1013, 0x1009
SENDER, SENDER_ADDRESS, NAME, ADDRESS, KIND = 0x0C1A, 0x5D01, 0x3001, 0x39FE, 0x0C15
FILE_NAME, DATA, CONTENT_ID, CODE_PAGE = 0x3707, 0x3701, 0x3712, 0x3FDE
RICH = rb"{\rtf1\ansi Bees \b dance\b0 .\par}"
SENT = datetime(2026, 11, 26, 4, tzinfo=UTC) - datetime(1601, 1, 1, tzinfo=UTC)
UNCOMPRESSED = struct.pack("<IIII", len(RICH) + 12, len(RICH), 0x414C454D, 0) + RICH


def parsed(content: bytes) -> ParsedFile:
    return parse_outlook_message(content, AMPLE_BYTES)


def sections(file: ParsedFile) -> list[tuple[str, int]]:
    return [(head.title, head.depth) for head in file.headings]


def test_the_properties_are_title_and_metadata():
    file = parsed(
        msg_file(
            {
                SUBJECT: "The dance",
                BODY: "Bees dance.\r\n",
                SENDER: "Ann",
                SENDER_ADDRESS: "ann@x.example",
            },
            [
                {NAME: "Bob", ADDRESS: "bob@x.example", KIND: 1},
                {NAME: "Carl", 0x3003: "/o=ORG/cn=CARL", KIND: 2},
                {NAME: "'d@x.example'", ADDRESS: "d@x.example", KIND: 1},
                {NAME: "Hidden", KIND: 3},
            ],
        )
    )
    assert (file.title, file.text) == ("The dance", "Bees dance.")
    assert file.metadata == {
        "from": "Ann <ann@x.example>",
        "to": ["Bob <bob@x.example>", "d@x.example"],
        "cc": ["Carl"],
    }


def test_the_time_is_the_one_at_which_the_message_was_sent():
    """Times count 100 nanoseconds since the year 1601."""
    assert parsed(msg_file({SUBJECT: "S", 0x39: SENT})).metadata == {"date": "2026-11-26T04:00:00Z"}
    assert parsed(msg_file({SUBJECT: "S", 0x39: timedelta.max})).metadata == {}


def test_the_header_of_the_mail_comes_first():
    headers = (
        "From: Ann <a@x.example>\r\nTo: b@x.example\r\nDate: Thu, 26 Nov 2026 04:00:00 +0000\r\n"
        "Message-ID: <1@x>\r\n"
    )
    file = parsed(msg_file({SUBJECT: "S", BODY: "x", HEADERS: headers, SENDER: "other"}))
    assert file.metadata == {
        "from": "Ann <a@x.example>",
        "to": ["b@x.example"],
        "date": "2026-11-26T04:00:00Z",
        "message_id": "1@x",
    }


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({BODY: "plain"}, "plain"),
        ({HTML: b"<p>html"}, "html"),
        ({HTML: "<p>html"}, "html"),
        ({BODY: "word", HTML: b"<p>word"}, "word"),
        ({BODY: "x y", HTML: b"<ul><li>x<li>y</ul>"}, "- x\n- y"),
        ({HTML: "<p>Café".encode("cp1252"), CODE_PAGE: 1252}, "Café"),
        ({HTML: "<p>Café".encode(), CODE_PAGE: 65001}, "Café"),
        ({HTML: "<p>Café".encode(), CODE_PAGE: 99999}, "Café"),
        ({RTF: UNCOMPRESSED}, "Bees dance."),
        ({BODY: "plain", RTF: b"damaged"}, "plain"),
        ({SUBJECT: "Only a subject"}, "Only a subject"),
    ],
    ids=[
        *("plain", "html", "html as text", "both", "more in html", "code page", "utf-8"),
        *("unknown code page", "rich text", "damaged rich text", "subject"),
    ],
)  # fmt: skip
def test_one_form_of_the_body_is_read(properties, text):
    assert parsed(msg_file({SUBJECT: "S", **properties})).text == text


def compressed(literals: bytes) -> bytes:
    """Returns rich text compressed by the algorithm LZFu, without references."""
    groups = (literals[at : at + 8] for at in range(0, len(literals), 8))
    data = b"".join(b"\0" + group for group in groups)
    return struct.pack("<IIII", len(data) + 12, len(literals), 0x75465A4C, 0) + data


def test_compressed_rich_text_is_read():
    assert parsed(msg_file({SUBJECT: "S", RTF: compressed(RICH)})).text == "Bees dance."
    reference = b"\x01" + struct.pack(">H", 0 << 4 | 4) + b"ansi x}"  # Copies `{\\rtf1` (6 bytes).
    data = struct.pack("<IIII", len(reference) + 12, 20, 0x75465A4C, 0) + reference
    assert parsed(msg_file({SUBJECT: "S", RTF: data})).text == "ansi x"


def test_attachments_are_sections_and_pictures_in_the_body_are_left_out():
    file = parsed(
        msg_file(
            {SUBJECT: "S", BODY: "body"},
            attachments=[
                {FILE_NAME: "prices.csv", DATA: b"name,price\nPump,12\n"},
                {FILE_NAME: "long.txt", DATA: b"word " * 2_000},
                {FILE_NAME: "logo.png", CONTENT_ID: "1", DATA: b"\x89PNG"},
                {FILE_NAME: "photo.png", DATA: b"\x89PNG\r\n\x1a\n"},
                {FILE_NAME: "nothing.txt"},
            ],
            messages=[{SUBJECT: "Inner", BODY: "inner body", SENDER: "Ann"}],
        )
    )
    assert sections(file) == [("prices.csv", 1), ("long.txt", 1), ("Inner", 1)]
    assert file.text.endswith("# Inner\n\nFrom: Ann\n\ninner body")
    assert [(part.kind, part.part_count, part.example) for part in file.report.left_out] == [
        (LeftOutKind.ATTACHMENT, 2, "photo.png; nothing.txt")
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"word",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        ole_archive({"Workbook": b"x"}),
        msg_file({SUBJECT: "S"})[:700],
    ],
    ids=["empty", "text", "zeros", "workbook", "cut off"],
)
def test_other_files_are_refused(content):
    with pytest.raises(UnreadableDocument, match="Outlook message"):
        parsed(content)


def test_streams_that_share_their_bytes_are_refused_before_they_are_read():
    content = bytearray(msg_file({SUBJECT: "S", **{0x6000 + n: bytes(9_000) for n in range(20)}}))
    for at in range(0, len(content) - 128, 128):
        if content[at : at + 4] == "__".encode("utf-16-le"):
            struct.pack_into("<I", content, at + 120, 200_000_000)
    with pytest.raises(InvalidArgument) as caught:
        parsed(bytes(content))
    assert isinstance(caught.value, TooLarge | UnreadableDocument)
