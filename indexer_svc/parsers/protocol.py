"""The messages between the indexer and a parser process, over one socket.

A message consists of the lengths of head and body, a JSON object (the head), and bytes (the body).
In the answer of a parser, the head has the pages, the headings and the title, and the body is the
text. Messages of a parser are not trusted, because a hostile file may have taken over the process.
So nothing is unpickled, the receiver limits every length, and `answer_of` checks each value before
the value is used.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from hrag.values.document_limits import LIMIT_NAMES, MAX_PAGES
from hrag.values.errors import BlankDocument, InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.limits import MAX_METADATA_BYTES, MAX_METADATA_VALUES, MAX_TITLE_BYTES
from hrag.values.page_images import PageImage, SpanBox
from hrag.values.read_report import LeftOut, LeftOutKind, PageUnit, ReadReport
from indexer_svc.parsers.parsed_file import (
    MAX_HEADINGS,
    Edit,
    Heading,
    PageRange,
    ParsedFile,
    without_metadata,
)
from indexer_svc.parsers.recognised_words import MAX_RECOGNISED_WORDS, RecognisedWords
from indexer_svc.titles import MAX_SECTION_TITLE_CHARS

# The head of a message, a JSON object, has at most this many bytes. This is enough for 65,535
# headings of 200 characters and 100,000 pages. Heads are limited because decoded JSON needs many
# times its encoded size in memory.
MAX_HEAD_BYTES = 16 << 20
_MAX_NUMBER = 0xFFFF_FFFF
_MAX_REPORT_TEXT_BYTES = 1_000
_PNG = b"\x89PNG\r\n\x1a\n"
# A recognised line of Latin letters without a space is a single word.
_MAX_WORD_BYTES = 4_000
# Headings may have a great depth, because bookmarks in a PDF may be nested very deep.
MAX_HEADING_DEPTH = 1_000_000

_LENGTHS = struct.Struct("<II")
_REFUSALS = {
    kind.__name__: kind for kind in (InvalidArgument, UnreadableDocument, BlankDocument, TooLarge)
}

Head = dict[str, Any]
Receive = Callable[[int], bytes]
"""A function that receives exactly the given number of bytes."""


class MalformedMessage(Exception):
    """Raised if the other process has sent a message that the protocol does not allow."""


class ParserFault(Exception):
    """Raised if the parser has reported that reading the file raised an unexpected error."""


def message(head: Head, body: bytes = b"") -> list[bytes]:
    """Returns an encoded message: byte strings that must be sent one after another.

    `head` is encoded as JSON. `body` is sent as it is.
    """
    encoded = json.dumps(head, ensure_ascii=False).encode()
    return [_LENGTHS.pack(len(encoded), len(body)) + encoded, body]


def received(receive: Receive, max_body_bytes: int) -> tuple[Head, bytes]:
    """Receives a message; returns its head and its body.

    Raises MalformedMessage if the head is no JSON object, or if the head or the body is too long.
    Raises the errors of `receive`.
    """
    head_bytes, body_bytes = _LENGTHS.unpack(receive(_LENGTHS.size))
    if head_bytes > MAX_HEAD_BYTES or body_bytes > max_body_bytes:
        raise MalformedMessage(
            f"the message has a head of {head_bytes} bytes and a body of {body_bytes} bytes; "
            f"at most {MAX_HEAD_BYTES} and {max_body_bytes} are allowed"
        )
    try:
        head = json.loads(receive(head_bytes))
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"the head of the message is not JSON: {error}") from None
    if not isinstance(head, dict):
        raise MalformedMessage(
            f"the head of the message is a {type(head).__name__}; it must be a JSON object"
        )
    return head, receive(body_bytes)


def answer_to(parse: Callable[[], ParsedFile]) -> list[bytes]:
    """Calls `parse`; returns the encoded answer, with the parsed file or with the error."""

    def answer() -> list[bytes]:
        parsed = _with_fitting_metadata(parse())
        encoded = message(_head_of(parsed), parsed.text.encode())
        head_bytes = len(encoded[0]) - _LENGTHS.size
        if head_bytes > MAX_HEAD_BYTES:
            raise TooLarge(
                f"content has too many headings and pages: the list of them needs {head_bytes} "
                f"bytes; at most {MAX_HEAD_BYTES} are allowed; split the document",
                field="content",
            )
        return encoded

    return _answer_or_error(answer)


def image_answer_to(render: Callable[[], PageImage]) -> list[bytes]:
    """Calls `render`; returns the encoded answer, with the image or with the error."""

    def answer() -> list[bytes]:
        image = render()
        size = (image.width_pixels, image.height_pixels, image.width_points, image.height_points)
        return message({"size": size, "boxes": image.boxes}, image.png)

    return _answer_or_error(answer)


def words_answer_to(recognise: Callable[[], RecognisedWords]) -> list[bytes]:
    """Calls `recognise`; returns the encoded answer, with the words or with the error."""
    return _answer_or_error(lambda: message({"words": recognise().as_json()}))


def _answer_or_error(answer: Callable[[], list[bytes]]) -> list[bytes]:
    try:
        return answer()
    except InvalidArgument as error:
        return message(
            {
                "refusal": type(error).__name__,
                "message": error.message,
                "field": error.field,
                "limit": error.limit,
            }
        )
    except Exception as error:  # A library may raise any kind of error for a damaged file.
        return message({"fault": f"{type(error).__name__}: {error}"[:500]})


def progress(page_count: int) -> list[bytes]:
    """Returns the encoded message that `page_count` pages of a file have been recognised.

    A parser sends this message before it recognises each page, and then sends its answer.
    """
    return message({"recognised_pages": page_count})


def progress_of(head: Head) -> int | None:
    """Returns the count of pages in a message of `progress`, or None for another message.

    Raises MalformedMessage if the count is not allowed.
    """
    return _check_number(head["recognised_pages"]) if "recognised_pages" in head else None


def answer_of(head: Head, body: bytes) -> ParsedFile:
    """Checks every value of a parser's answer; returns the parsed file.

    If the parser reports an InvalidArgument, raises this error. If the parser reports any other
    error, raises ParserFault. Raises MalformedMessage if a value in the answer is not allowed.
    """
    _raise_reported(head)
    try:
        text = body.decode()
        pages = tuple(PageRange(*values) for values in head["pages"])
        headings = tuple(Heading(*values) for values in head["headings"])
        title = _text(head["title"], MAX_TITLE_BYTES)
        _check_pages(pages, len(text))
        _check_headings(headings, len(text))
        unit, metadata = PageUnit(head["page_unit"]), _metadata(head["metadata"])
        report, edits = _report(head["report"]), tuple(Edit(*values) for values in head["edits"])
        _check_edits(edits, len(text))
        return ParsedFile(text, pages, headings, title, unit, metadata, report, edits)
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedMessage(f"the parser's answer is invalid: {error}") from None


def image_of(head: Head, body: bytes, max_boxes: int, span_count: int) -> PageImage:
    """Checks every value of a parser's answer with an image; returns the image.

    `span_count` is the number of spans whose boxes were asked for. Raises the errors of
    `answer_of`. The image itself is not decoded; whoever shows it must treat it as untrusted, like
    the file.
    """
    _raise_reported(head)
    try:
        width, height, width_points, height_points = head["size"]
        _check_number(width)
        _check_number(height)
        boxes = tuple(SpanBox(_check_number(span), *sides) for span, *sides in head["boxes"])
        _require(len(boxes) <= max_boxes, "too many boxes")
        numbers = [width_points, height_points, *(side for box in boxes for side in box[1:])]
        _require(all(type(number) in (int, float) for number in numbers), "a place without number")
        # Neither infinity nor NaN, which JSON of Python may contain, is in these ranges.
        sizes = (width_points, height_points)
        _require(all(0 < size <= _MAX_NUMBER for size in sizes), "a page of an impossible size")
        _require(all(box.span < span_count for box in boxes), "a box of no span")
        _require(all(0 <= side <= 1 for box in boxes for side in box[1:]), "a box off the page")
        _require(body.startswith(_PNG), "an image that is no PNG")
        return PageImage(body, width, height, width_points, height_points, boxes)
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedMessage(f"the parser's answer is invalid: {error}") from None


def words_of(head: Head) -> RecognisedWords:
    """Checks every value of a parser's answer with recognised words; returns the words.

    Raises the errors of `answer_of`.
    """
    _raise_reported(head)
    try:
        found = RecognisedWords.from_json(head["words"])
        _require(len(found.words) <= MAX_RECOGNISED_WORDS, "too many words")
        for word in found.words:
            _text(word.text, _MAX_WORD_BYTES)
            _check_number(word.line)
            _require(len(word.box) == 4, "a place of a wrong size")
        numbers = [found.skew, found.width, found.height, *(x for w in found.words for x in w.box)]
        _require(all(type(number) in (int, float) for number in numbers), "a place without number")
        # Neither infinity nor NaN is in this range.
        _require(all(abs(number) <= _MAX_NUMBER for number in numbers), "an impossible place")
        _require(found.width > 0 and found.height > 0, "a page of an impossible size")
        _require(found.turn in (0, 90, 180, 270), "an unknown turn")
        return found
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedMessage(f"the parser's answer is invalid: {error}") from None


def _raise_reported(head: Head) -> None:
    """Raises the error that a parser reports, if it reports one."""
    if "refusal" in head:
        raise _refusal(head)
    if "fault" in head:
        raise ParserFault(_text(head["fault"], 500))


def _with_fitting_metadata(parsed: ParsedFile) -> ParsedFile:
    """Returns a parsed file without the metadata that `answer_of` would not accept.

    The report says how many fields are left out. Fields are kept in their order.
    """
    kept: dict[str, str | list[str]] = {}
    unfit: list[str] = []
    size = count = 0
    for name, value in parsed.metadata.items():
        texts = [name, *(value if isinstance(value, list) else [value])]
        try:
            field_size = len("".join(texts).encode())
        except UnicodeEncodeError:  # An escape sequence in YAML or JSON may give a lone surrogate.
            field_size = MAX_METADATA_BYTES + 1
        is_fitting = size + field_size <= MAX_METADATA_BYTES
        if is_fitting and count + len(texts) <= MAX_METADATA_VALUES:
            kept[name] = value
            size, count = size + field_size, count + len(texts)
        else:
            unfit.append(name)
    if not unfit:
        return parsed
    return replace(parsed, metadata=kept, report=without_metadata(parsed.report, unfit))


def _head_of(parsed: ParsedFile) -> Head:
    return {
        "title": parsed.title,
        "pages": parsed.pages,
        "headings": parsed.headings,
        "page_unit": parsed.page_unit,
        "metadata": dict(parsed.metadata),
        "report": asdict(parsed.report),
        "edits": parsed.edits,
    }


def _refusal(head: Head) -> InvalidArgument:
    """Returns the InvalidArgument (or subclass) that the parser reports.

    Raises MalformedMessage if the name of the reported error, or of its limit, is unknown.
    """
    kind = _REFUSALS.get(str(head["refusal"]))
    if kind is None:
        raise MalformedMessage("the parser's answer reports an error of an unknown kind")
    limit = _text(head.get("limit"), 64)
    _require(limit in ("", *LIMIT_NAMES), "an unknown limit")
    return kind(_text(head.get("message"), 4096), field=_text(head.get("field"), 64), limit=limit)


def _check_pages(pages: tuple[PageRange, ...], length: int) -> None:
    _require(len(pages) <= MAX_PAGES, "too many pages")
    position = 0
    for page in pages:
        _require(
            type(page.char_start) is int and type(page.char_end) is int,
            "a page whose offsets are not whole numbers",
        )
        _require(position <= page.char_start <= page.char_end <= length, "a page out of order")
        _require(type(page.is_recognised) is bool, "a page without a flag")
        _check_number(page.number)
        position = page.char_end


def _check_headings(headings: tuple[Heading, ...], length: int) -> None:
    _require(len(headings) <= MAX_HEADINGS, "too many headings")
    position = 0
    for heading in headings:
        _require(
            type(heading.depth) is int and type(heading.char_start) is int,
            "a heading whose depth or offset is not a whole number",
        )
        _require(1 <= heading.depth <= MAX_HEADING_DEPTH, "a heading of a wrong depth")
        _require(position <= heading.char_start <= length, "a heading out of order")
        title = _text(heading.title, 4 * MAX_SECTION_TITLE_CHARS)
        _require(0 < len(title) <= MAX_SECTION_TITLE_CHARS, "a heading with an empty or long title")
        position = heading.char_start


def _check_edits(edits: tuple[Edit, ...], length: int) -> None:
    position = new_length = 0
    for edit in edits:
        numbers = [_check_number(value) for value in edit]
        _require(position <= edit.char_start <= edit.char_end, "an edit out of order")
        new_length += edit.char_start - position + numbers[-1]
        _require(new_length <= length, "an edit beyond the text")
        position = edit.char_end


def _metadata(value: Any) -> dict[str, str | list[str]]:
    """Returns `value` if it maps names to texts or lists of texts; raises MalformedMessage."""
    _require(isinstance(value, dict), "metadata of a wrong type")
    values = [
        text for field in value.values() for text in (field if isinstance(field, list) else [field])
    ]
    _require(len(values) + len(value) <= MAX_METADATA_VALUES, "too many values")
    size = sum(len(_text(text, MAX_METADATA_BYTES)) for text in (*value, *values))
    _require(size <= MAX_METADATA_BYTES, "too large metadata")
    return dict(value)


def _report(value: Any) -> ReadReport:
    report = ReadReport(
        _text(value["encoding"], _MAX_REPORT_TEXT_BYTES),
        _check_number(value["table_count"]),
        tuple(map(_check_number, value["recognised_pages"])),
        tuple(map(_check_number, value["unread_pages"])),
        tuple(
            LeftOut(LeftOutKind(kind), _check_number(count), _text(text, _MAX_REPORT_TEXT_BYTES))
            for kind, count, text in value["left_out"]
        ),
    )
    pages = len(report.recognised_pages) + len(report.unread_pages)
    _require(pages <= 2 * MAX_PAGES and len(report.left_out) <= len(LeftOutKind), "a long report")
    return report


def _check_number(value: Any) -> int:
    """Returns `value` if it is an integer from 0 to 2^32 - 1; raises MalformedMessage."""
    _require(type(value) is int and 0 <= value <= _MAX_NUMBER, "a number out of range")
    return int(value)


def _text(value: Any, max_bytes: int) -> str:
    """Returns `value` if it is a string of at most `max_bytes` bytes in UTF-8.

    Raises MalformedMessage otherwise.
    """
    _require(isinstance(value, str), "a value that is not a string")
    try:
        _require(len(value.encode()) <= max_bytes, "a string that is too long")
    except UnicodeEncodeError:
        raise MalformedMessage(
            "the parser's answer is invalid: it has a string with a lone surrogate"
        ) from None
    return str(value)


def _require(is_valid: bool, problem: str) -> None:
    if not is_valid:
        raise MalformedMessage(f"the parser's answer is invalid: it has {problem}")
