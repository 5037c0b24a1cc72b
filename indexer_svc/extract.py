"""Text extraction: reads the text, pages, sections and title of a document that a client sent.

Text is extracted before a document is cut into chunks. A document is refused if its type is
unknown, or if its body is too large, unreadable or blank. It is also refused if it has a run of
white space, or a run of other characters, that is so long that it would stall the tokenizer. The
extracted text is never blank, and can always be encoded in UTF-8. Pages and sections are in order
of position. The same document has the same result on every machine. This module does not depend on
tokens, storage or gRPC.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hrag.values.deadline import Deadline
from hrag.values.documents import Document, Page
from hrag.values.errors import BlankDocument, InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.formats import CSV, DOCX, EPUB, HTML, MARKDOWN, PDF, PPTX, PYTHON, RST, TSV, XLSX
from hrag.values.limits import MAX_PAGES
from hrag.values.tree import PageSpan, ParsedText, Section
from indexer_svc.mime_types import Body, field_of, require_readable, resolve_mime_type
from indexer_svc.parsers import parser_functions
from indexer_svc.parsers.parsed_file import PAGE_BREAK, PageRange, ParsedFile, joined

# A text may have at most MAX_RUN_CHARS characters without white space in a row, and at most
# MAX_WHITE_SPACE_CHARS characters of white space in a row. The reason is that the tokenizer
# processes such a run as a whole, in a time that grows faster than the length of the run. It fails
# on about 1,000,000 characters of white space in a row. MAX_WHITE_SPACE_CHARS is large enough for
# the line breaks between MAX_PAGES empty pages.
MAX_RUN_CHARS = 1_000_000
MAX_WHITE_SPACE_CHARS = 250_000

# The foreign formats: files of these formats are not text that a person can read. Only a parser
# process parses these files, even if they are small. Each key is a MIME type, and its value is the
# name of the format in error messages.
_FOREIGN_FORMATS = {
    PDF: "a PDF",
    HTML: "an HTML page",
    DOCX: "a Word document",
    PPTX: "a presentation",
    XLSX: "a workbook",
    EPUB: "an EPUB",
}
# The indexer's own process parses texts of these formats that have at most
# _MAX_TEXT_BYTES_PARSED_HERE bytes. A parser process parses longer texts, because no other thread
# of a process can run while the process parses. Parsing Markdown of this size that consists only of
# markers takes a tenth of a second.
_TEXT_FORMATS = (MARKDOWN, RST, CSV, TSV, PYTHON)
_MAX_TEXT_BYTES_PARSED_HERE = 16_384
# Matches a visible character. A text that consists of white space and of these zero-width
# characters is blank.
_VISIBLE = re.compile("[^\\s\u200b\u200c\u200d\u2060\ufeff]")
_WHITE_SPACE, _NO_WHITE_SPACE = re.compile(r"\s"), re.compile(r"\S")
# Python treats these characters as white space, but the tokenizer does not. So they are replaced by
# hyphens before the lengths of runs of characters are measured.
_SEPARATORS = "\x1c\x1d\x1e\x1f"

Parse = Callable[[bytes, str, int], ParsedFile]
"""Parses a file in another process.

The arguments are the bytes, their MIME type, and the largest size of the text in bytes of UTF-8.
"""
TenantParse = Callable[[str, Deadline, bytes, str, int], ParsedFile]
"""Parses a file for a tenant, like Parse, with two more arguments before the others.

They are the tenant's id and the deadline of the call.
"""


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text, pages, sections and title of a document's body.

    `title` is the title that the body itself contains, at most MAX_TITLE_BYTES bytes of UTF-8, or
    empty if the body contains no title. It depends only on the body and its MIME type.
    """

    parsed: ParsedText
    title: str = ""


def no_parser(
    _tenant_id: str, _deadline: Deadline, _content: bytes, mime_type: str, _max_text_bytes: int
) -> ParsedFile:
    """Raises UnreadableDocument.

    A pipeline that reads only plain text uses this function in place of a parser.
    """
    raise UnreadableDocument(f"{mime_type} cannot be read without a parser", field="mime_type")


def extract(document: Document, max_bytes: int, parse: Parse) -> Extracted:
    """Returns the text, pages, sections and title of a document's body.

    `max_bytes` limits the body (a file's bytes, or text in UTF-8) and also the text that is
    extracted from the body (in UTF-8). `parse` parses files that are not text (a PDF, for example)
    and long texts.

    Pages are joined by one blank line and keep their numbers. The pages of a PDF and the slides
    of a presentation are numbered from 1. Sections are the headings of a text, the bookmarks of
    a PDF, the slides of a presentation or the sheets of a workbook. Offsets count code points of
    the returned text.

    The title is the one in the document's front matter or metadata, or else its first heading of
    level 1. Plain text, tables and source code have no title. A workbook has only the title in
    its metadata.

    NUL characters are allowed in `text` and `pages`. If `content` should be text, NUL characters
    are refused, because they show that the bytes are of another format.

    Raises:
        TooLarge: the body or the text extracted from it exceeds `max_bytes`, or there are more
            than MAX_PAGES pages.
        UnreadableDocument: `content` is not UTF-8, has a NUL byte although it should be text,
            or is a damaged or encrypted file.
        BlankDocument: the text has no visible character.
        InvalidArgument: the type is unknown, does not fit the body, or needs libraries that are
            not installed. Or the text has a lone surrogate, a run of more than MAX_RUN_CHARS
            characters without white space, or a run of more than MAX_WHITE_SPACE_CHARS
            characters of white space.

    Also raises the errors of `parse`.
    """
    mime_type = resolve_mime_type(document)
    field = field_of(document.body)
    require_readable(mime_type)
    _check_size(document.body, field, max_bytes)
    if mime_type in _FOREIGN_FORMATS:
        return _from_file(parse(_bytes_of(document.body), mime_type, max_bytes), mime_type, field)
    text, pages = _text_of(document.body)
    _check_text(text, field)
    if mime_type not in _TEXT_FORMATS:
        return Extracted(ParsedText(text, (), pages))
    content = text.encode()
    if len(content) <= _MAX_TEXT_BYTES_PARSED_HERE:
        parse = parser_functions.parse
    read = parse(content, mime_type, max_bytes)
    _check_text(read.text, field)
    return Extracted(ParsedText(read.text, _sections(read), pages), read.title)


def _check_size(body: Body, field: str, max_bytes: int) -> None:
    """Raises TooLarge if the body has more than `max_bytes` bytes."""
    if isinstance(body, bytes):
        size = len(body)
    elif isinstance(body, str):
        size = _utf8_size(body, field, field)
    else:
        size = _joined_size(body)
    if size > max_bytes:
        raise TooLarge(
            f"{field} is {size} bytes; HRAG_MAX_DOCUMENT_BYTES allows {max_bytes}", field=field
        )


def _joined_size(pages: Sequence[Page]) -> int:
    """Returns the size, in bytes of UTF-8, of the text into which the pages will be joined.

    Raises TooLarge for more than MAX_PAGES pages, or InvalidArgument for a lone surrogate.
    """
    if len(pages) > MAX_PAGES:
        raise TooLarge(
            f"pages has {len(pages)} pages; at most {MAX_PAGES} are allowed", field="pages"
        )
    sizes = (
        _utf8_size(page.text, f"pages[{index}].text", "pages") for index, page in enumerate(pages)
    )
    return sum(sizes) + len(PAGE_BREAK) * max(0, len(pages) - 1)


def _utf8_size(text: str, name: str, field: str) -> int:
    """Returns the size of `text` in bytes of UTF-8.

    Raises InvalidArgument for a lone surrogate. `name` is the name of the text in the message.
    """
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{name} has the lone surrogate U+{ord(text[error.start]):04X} at character "
            f"{error.start}; only text that UTF-8 can encode is allowed",
            field=field,
        ) from None


def _bytes_of(body: Body) -> bytes:
    return body if isinstance(body, bytes) else _text_of(body)[0].encode()


def _text_of(body: Body) -> tuple[str, tuple[PageSpan, ...]]:
    if isinstance(body, str):
        return body, ()
    if isinstance(body, bytes):
        return _decode(body), ()
    numbers = (page.number or position for position, page in enumerate(body, start=1))
    text, ranges = joined([page.text for page in body])
    return text, _pages(ranges, numbers)


def _decode(content: bytes) -> str:
    """Returns the text of UTF-8 bytes, without a byte order mark.

    Raises UnreadableDocument if the bytes are not UTF-8 or contain NUL.
    """
    start = len(codecs.BOM_UTF8) if content.startswith(codecs.BOM_UTF8) else 0
    if b"\0" in content:
        raise UnreadableDocument(
            f"content is not text: it has a NUL byte at offset {content.index(0)}; mime_type must "
            "name the format of the file",
            field="content",
        )
    try:
        return content[start:].decode()
    except UnicodeDecodeError as error:
        offset = start + error.start
        raise UnreadableDocument(
            f"content is not UTF-8: byte 0x{content[offset]:02X} at offset {offset}; "
            "text must be UTF-8",
            field="content",
        ) from None


def _pages(ranges: Sequence[PageRange], numbers: Iterable[int]) -> tuple[PageSpan, ...]:
    return tuple(PageSpan(number, *range_) for number, range_ in zip(numbers, ranges, strict=True))


def _sections(read: ParsedFile) -> tuple[Section, ...]:
    return tuple(Section(*heading) for heading in read.headings)


def _from_file(read: ParsedFile, mime_type: str, field: str) -> Extracted:
    if _VISIBLE.search(read.text) is None:
        raise BlankDocument(_blank_message(read, mime_type, field), field=field)
    _check_runs(read.text, field)
    pages = _pages(read.pages, range(1, len(read.pages) + 1))
    return Extracted(ParsedText(read.text, _sections(read), pages), read.title)


def _blank_message(read: ParsedFile, mime_type: str, field: str) -> str:
    if mime_type != PDF:
        return f"{field} is {_FOREIGN_FORMATS[mime_type]} without text"
    return (
        f"{field} is a PDF without text on any of its {len(read.pages)} pages; it may be a scan, "
        "which needs text recognition first"
    )


def _check_text(text: str, field: str) -> None:
    """Raises BlankDocument if a text has no visible character, and the errors of `_check_runs`."""
    if _VISIBLE.search(text) is None:
        raise BlankDocument(f"{field} is blank; it must contain visible text", field=field)
    _check_runs(text, field)


def _check_runs(text: str, field: str) -> None:
    """Raises InvalidArgument for a run of characters that is too long for the tokenizer.

    A run has only characters without white space, or only white space.
    """
    for separator in _SEPARATORS:
        text = text.replace(separator, "-")
    start = _long_run_start(text, MAX_RUN_CHARS, _last_word_chars)
    if start is not None:
        raise InvalidArgument(
            f"{field} has {_run_chars(text, start, _WHITE_SPACE)} characters without white space "
            f"from character {start}; at most {MAX_RUN_CHARS} are allowed",
            field=field,
        )
    start = _long_run_start(text, MAX_WHITE_SPACE_CHARS, _last_white_space_chars)
    if start is not None:
        raise InvalidArgument(
            f"{field} has {_run_chars(text, start, _NO_WHITE_SPACE)} characters of white space in "
            f"a row from character {start}; at most {MAX_WHITE_SPACE_CHARS} are allowed",
            field=field,
        )


def _run_chars(text: str, start: int, end_pattern: re.Pattern[str]) -> int:
    """Returns how many characters are between `start` and the first match of `end_pattern`.

    Without a match, counts the characters to the end of the text.
    """
    end = end_pattern.search(text, start)
    return (len(text) if end is None else end.start()) - start


def _last_word_chars(window: str) -> int:
    return 0 if window[-1].isspace() else len(window.rsplit(None, 1)[-1])


def _last_white_space_chars(window: str) -> int:
    return len(window) - len(window.rstrip())


def _long_run_start(text: str, longest: int, last_run_chars: Callable[[str], int]) -> int | None:
    """Returns the offset of the first run of more than `longest` characters, or None.

    A run has only white space, or only other characters. `last_run_chars` returns the length of the
    run at the end of a text, or 0 if the text does not end with a run. The search reads pieces of
    `longest` + 1 characters of the text. If the run at the end of a piece has at most `longest`
    characters, the next piece begins where this run begins. A run that ends before the end of a
    piece has at most `longest` characters, so it is not examined.
    """
    start = 0
    while len(text) - start > longest:
        window = text[start : start + longest + 1]
        last_run = last_run_chars(window)
        if last_run > longest:
            return start
        start += len(window) - last_run
    return None
