"""Every message of a parser process is checked before it is used."""

import json
import struct
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import BlankDocument, InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.page_images import PageImage, SpanBox
from hrag.values.read_report import LeftOut, LeftOutKind, PageUnit, ReadReport
from indexer_svc.parsers import protocol
from indexer_svc.parsers.parsed_file import Heading, PageRange, ParsedFile
from indexer_svc.parsers.protocol import (
    MalformedMessage,
    ParserFault,
    answer_of,
    answer_to,
    image_answer_to,
    image_of,
    message,
    progress,
    progress_of,
    received,
    words_answer_to,
    words_of,
)
from indexer_svc.parsers.recognised_words import PrintedWord, RecognisedWords

REPORT = ReadReport("utf-8", 2, (7,), (8, 9), (LeftOut(LeftOutKind.PAGE_NUMBER, 3, "- 7 -"),))
PARSED = ParsedFile(
    "Größe 😀\n\nend",
    (PageRange(0, 7, 7, True), PageRange(9, 12)),
    (Heading("Größe", 1, 0),),
    "A title",
    PageUnit.ROW,
    {"from": "ann@example.com", "to": ["bob@example.com", "eve@example.com"]},
    REPORT,
)
AMPLE_BYTES = 1 << 20
NO_REPORT = asdict(ReadReport())
HEAD = {
    "title": "",
    "pages": [],
    "headings": [],
    "page_unit": "page",
    "metadata": {},
    "report": NO_REPORT,
    "edits": [],
}


def transferred(parts: list[bytes], max_body_bytes: int = AMPLE_BYTES) -> ParsedFile:
    """Returns the answer that is received from these parts of a message."""
    return answer_of(*received(BytesIO(b"".join(parts)).read, max_body_bytes))


def raising(error: Exception) -> Callable[[], ParsedFile]:
    def parse() -> ParsedFile:
        raise error

    return parse


def test_an_answer_is_received_unchanged():
    assert transferred(answer_to(lambda: PARSED)) == PARSED


@pytest.mark.parametrize("kind", [InvalidArgument, UnreadableDocument, BlankDocument, TooLarge])
def test_a_refusal_is_received_as_the_same_error(kind):
    with pytest.raises(InvalidArgument, match="too bad") as caught:
        transferred(answer_to(raising(kind("too bad", field="content", limit="table_cells"))))
    assert type(caught.value) is kind
    assert caught.value.field == "content"
    assert caught.value.limit == "table_cells"


def test_any_other_error_is_received_as_a_fault_with_a_bounded_text():
    with pytest.raises(ParserFault, match="KeyError: 'x") as caught:
        transferred(answer_to(raising(KeyError("x" * 10_000))))
    assert len(str(caught.value)) == 500


def test_more_headings_than_fit_into_a_message_are_refused(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_HEAD_BYTES", 200)
    parsed = ParsedFile("text", (), (Heading("x" * 100, 1, 0),) * 3)
    with pytest.raises(TooLarge, match="at most 200 are allowed"):
        transferred(answer_to(lambda: parsed))


def test_a_text_beyond_the_limit_is_refused_before_it_is_received():
    with pytest.raises(MalformedMessage, match="17 bytes"):
        transferred(answer_to(lambda: PARSED), 16)


def test_a_head_beyond_the_limit_is_refused_before_it_is_received():
    sizes = []
    with pytest.raises(MalformedMessage):
        received(lambda size: sizes.append(size) or struct.pack("<II", 1 << 31, 0), AMPLE_BYTES)
    assert sizes == [8]


@pytest.mark.parametrize("head", [b"{", b"[]", b'"text"', b"\xff", b"[" * 200_000])
def test_a_head_that_is_no_object_is_malformed(head):
    data = struct.pack("<II", len(head), 0) + head
    with pytest.raises(MalformedMessage):
        received(BytesIO(data).read, AMPLE_BYTES)


@pytest.mark.parametrize(
    "change",
    [
        {"title": None},
        {"title": "x" * 100_000},
        {"title": "\ud800"},
        {"pages": 7},
        {"pages": [[0]]},
        {"pages": [[0, 13]]},
        {"pages": [[4, 3]]},
        {"pages": [[0, 5], [4, 6]]},
        {"pages": [[-1, 5]]},
        {"pages": [[0.0, 5.0]]},
        {"pages": [[True, 5]]},
        {"pages": [[0, 0]] * 100_001},
        {"headings": [["t", 1]]},
        {"headings": [["t", 0, 0]]},
        {"headings": [["", 1, 0]]},
        {"headings": [["t" * 201, 1, 0]]},
        {"headings": [["\udfff", 1, 0]]},
        {"headings": [["t", 1, 13]]},
        {"headings": [["t", 1, 5], ["t", 1, 4]]},
        {"headings": [["t", 1, 0]] * 65_536},
        {"pages": [[0, 5, -1, False]]},
        {"pages": [[0, 5, 1, 7]]},
        {"page_unit": "verse"},
        {"metadata": []},
        {"metadata": {"from": 7}},
        {"metadata": {"to": [7]}},
        {"metadata": {"x": "y" * 65_537}},
        {"metadata": {"x": ["y"] * 1024}},
        {"report": {}},
        {"edits": [[0, 1]]},
        {"edits": [[0, 1, -1]]},
        {"edits": [[2, 1, 0]]},
        {"edits": [[0, 2, 0], [1, 3, 0]]},
        {"edits": [[0, 2, 1 << 20]]},
        {"edits": [[1 << 20, 1 << 21, 0]]},
        {"report": NO_REPORT | {"encoding": "x" * 1_001}},
        {"report": NO_REPORT | {"table_count": 1.0}},
        {"report": NO_REPORT | {"unread_pages": [1 << 32]}},
        {"report": NO_REPORT | {"left_out": [["other", 1, ""]]}},
        {"report": NO_REPORT | {"left_out": [["output", 1, ""]] * (len(LeftOutKind) + 1)}},
        {"refusal": "SystemExit", "message": "", "field": ""},
        {"refusal": "TooLarge"},
        {"refusal": "TooLarge", "message": "x" * 5000, "field": "", "limit": ""},
        {"refusal": "TooLarge", "message": "", "field": "", "limit": "patience"},
        {"refusal": "TooLarge", "message": "", "field": ""},
        {"fault": 7},
    ],
    ids=lambda change: str(change)[:40],
)
def test_an_answer_with_an_invalid_value_is_malformed(change):
    assert answer_of(HEAD, PARSED.text.encode()).text == PARSED.text
    head = HEAD | change
    with pytest.raises(MalformedMessage):
        answer_of(head, PARSED.text.encode())


def test_text_that_is_not_utf_8_is_malformed():
    with pytest.raises(MalformedMessage):
        answer_of({"title": "", "pages": [], "headings": []}, b"\xff")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(title=JSON, pages=JSON, headings=JSON, body=st.binary(max_size=20))
def test_every_message_is_an_answer_or_malformed(title, pages, headings, body):
    try:
        answer = answer_of({"title": title, "pages": pages, "headings": headings}, body)
    except MalformedMessage:
        return
    assert answer.text.encode() == body
    json.dumps([answer.pages, answer.headings])


def test_a_message_is_received_as_its_head_and_its_body():
    assert received(BytesIO(b"".join(message({"a": 1}, b"body"))).read, 4) == ({"a": 1}, b"body")


def test_the_progress_of_recognition_is_told_from_an_answer():
    head, body = received(BytesIO(b"".join(progress(3))).read, 0)
    assert (progress_of(head), body) == (3, b"")
    assert progress_of(HEAD) is None
    for count in (-1, 1.5, "3", True, None, 1 << 32):
        with pytest.raises(MalformedMessage):
            progress_of({"recognised_pages": count})


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        ({"a": "x" * 65_536, "b": "y"}, ["b"]),
        ({"a": ["x"] * 1023, "b": "y"}, ["a"]),
        ({"a": ["x"] * 1021, "b": "y"}, ["a", "b"]),
        ({"a": "\ud800", "\ud800": "x", "b": "y"}, ["b"]),
        ({str(n): "x" * 600 for n in range(1000)}, [str(n) for n in range(108)]),
    ],
)
def test_metadata_that_does_not_fit_into_an_answer_is_left_out_and_reported(metadata, kept):
    parsed = ParsedFile("text", metadata=metadata)
    answer = transferred(answer_to(lambda: parsed))
    assert list(answer.metadata) == kept
    unfit = len(metadata) - len(kept)
    parts = [(part.kind, part.part_count) for part in answer.report.left_out]
    assert parts == ([(LeftOutKind.METADATA, unfit)] if unfit else [])


IMAGE = PageImage(b"\x89PNG\r\n\x1a\n", 10, 20, 5.5, 9.0, (SpanBox(1, 0.0, 0.25, 1.0, 0.5),))
IMAGE_HEAD = {"size": [10, 20, 5.5, 9.0], "boxes": [[1, 0.0, 0.25, 1.0, 0.5]]}


WORDS = RecognisedWords((PrintedWord("bar.", (1.5, 2.0, 9.5, 4.0), 3),), 90, -1.5, 1200.0, 1700.0)
ONE_WORD = ["a", [0, 0, 1, 1], 0]


def test_recognised_words_are_received_as_they_were_sent():
    receive = BytesIO(b"".join(words_answer_to(lambda: WORDS))).read
    head, _ = received(receive, 0)
    assert words_of(head) == WORDS
    assert RecognisedWords.from_json(json.loads(json.dumps(WORDS.as_json()))) == WORDS


@pytest.mark.parametrize(
    "words",
    [
        None,
        [[ONE_WORD], 0, 0.0, 10],
        [[ONE_WORD], 45, 0.0, 10, 10],
        [[ONE_WORD], 0, 0.0, 0, 10],
        [[ONE_WORD], 0, float("nan"), 10, 10],
        [[ONE_WORD], 0, "1", 10, 10],
        [[["a", [0, 0, 1], 0]], 0, 0.0, 10, 10],
        [[["a", [0, 0, 1, float("inf")], 0]], 0, 0.0, 10, 10],
        [[["a", [0, 0, 1, 1], -1]], 0, 0.0, 10, 10],
        [[[b"a".hex() * 4_000, [0, 0, 1, 1], 0]], 0, 0.0, 10, 10],
        [[[1, [0, 0, 1, 1], 0]], 0, 0.0, 10, 10],
        [[ONE_WORD] * 20_001, 0, 0.0, 10, 10],
    ],
)
def test_words_that_a_parser_may_not_send_are_refused(words):
    with pytest.raises(MalformedMessage, match="the parser's answer is invalid"):
        words_of({"words": words})


def test_an_image_is_received_as_it_was_sent():
    receive = BytesIO(b"".join(image_answer_to(lambda: IMAGE))).read
    assert image_of(*received(receive, AMPLE_BYTES), max_boxes=1, span_count=2) == IMAGE


@pytest.mark.parametrize("size", ["Infinity", "-Infinity", "NaN", "-1", "0", "1e300", "9" * 400])
@pytest.mark.parametrize("at", [2, 3])
def test_a_page_of_an_impossible_size_is_refused(size, at):
    sizes = ["10", "20", "5.5", "9"]
    sizes[at] = size
    head = json.loads(f'{{"size": [{", ".join(sizes)}], "boxes": []}}')
    with pytest.raises(MalformedMessage, match="impossible size"):
        image_of(head, IMAGE.png, 1, 2)


@pytest.mark.parametrize(
    "boxes",
    [
        [[2, 0, 0, 1, 1]],
        [[-1, 0, 0, 1, 1]],
        [[True, 0, 0, 1, 1]],
        [[0, 0, 0, 1, 1.1]],
        [[0, float("nan"), 0, 1, 1]],
        [[0, 0, 0, float("inf"), 1]],
        [[0, "0", 0, 1, 1]],
        [[0, 0, 0, 1]],
        [[0, 0, 0, 1, 1]] * 3,
        [0],
        None,
    ],
)
def test_a_box_of_no_span_or_off_the_page_is_refused(boxes):
    with pytest.raises(MalformedMessage):
        image_of(IMAGE_HEAD | {"boxes": boxes}, IMAGE.png, 2, 2)
