"""Text extraction: from a document as a client sends it to text, pages, sections and a title.

The first step of an ingest. It refuses what cannot be indexed: an unknown type, a body that
is too large, unreadable or blank, and a run with or without white space that would stall the
tokenizer. The extracted text is never blank and always valid UTF-8; pages and sections are in
order of position. Pure: a document gives the same result on every machine. Knows nothing of
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

# A run is one piece for the tokenizer, in whose length it is superlinear; in white space of about
# 1,000,000 characters it fails. As many as all line breaks of MAX_PAGES empty pages are allowed.
MAX_RUN_CHARS = 1_000_000
MAX_WHITE_SPACE_CHARS = 250_000

# Formats that a process of its own reads, whatever their size, and how errors name them.
_FOREIGN = {
    PDF: "a PDF",
    HTML: "an HTML page",
    DOCX: "a Word document",
    PPTX: "a presentation",
    XLSX: "a workbook",
    EPUB: "an EPUB",
}
# Formats of text that this process reads itself. Longer texts are parsed by a process of its own:
# of Markdown of nothing but markers, so much takes a tenth of a second, in which no other thread
# runs.
_READ_HERE = (MARKDOWN, RST, CSV, TSV, PYTHON)
_MAX_READ_HERE_BYTES = 16_384
_VISIBLE = re.compile("[^\\s\u200b\u200c\u200d\u2060\ufeff]")  # Zero-width characters are blank.
_WHITE_SPACE, _NO_WHITE_SPACE = re.compile(r"\s"), re.compile(r"\S")
_SEPARATORS = "\x1c\x1d\x1e\x1f"  # White space for Python, but not for the tokenizer.

Parse = Callable[[bytes, str, int], ParsedFile]
"""Parses bytes of a MIME type, with the largest text in bytes of UTF-8, in another process."""
TenantParse = Callable[[str, Deadline, bytes, str, int], ParsedFile]
"""The same for a tenant that waits until a deadline."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """What is read from a document's body.

    `title` is the one that the body itself gives, at most MAX_TITLE_BYTES bytes of UTF-8;
    empty where it gives none. It depends on the body and the type alone.
    """

    parsed: ParsedText
    title: str = ""


def no_parser(
    _tenant_id: str, _deadline: Deadline, _content: bytes, mime_type: str, _max_text_bytes: int
) -> ParsedFile:
    """The parser of an ingestion that is given plain text alone. Raises UnreadableDocument."""
    raise UnreadableDocument(f"{mime_type} cannot be read without a parser", field="mime_type")


def extract(document: Document, max_bytes: int, parse: Parse) -> Extracted:
    """Returns the text, pages, sections and title of a document's body.

    `max_bytes` bounds the body (a file's bytes, or text in UTF-8) and the text read from it
    (UTF-8). Pages are joined by one blank line and keep their numbers; those of a PDF and the
    slides of a presentation are numbered from 1. Sections are the headings of a text, the
    bookmarks of a PDF, the slides of a presentation or the sheets of a workbook. The title is
    the document's own: of its front matter or metadata, else its first heading of level 1;
    plain text, tables and source code have none, nor has a workbook beside its metadata. Offsets
    are code points of the text returned. NUL characters are kept in `text` and `pages`; in bytes
    they are a sign of another format. `parse` reads foreign formats and long texts.

    Raises:
        TooLarge: the body or the text read from it exceeds `max_bytes`, or there are more than
            MAX_PAGES pages.
        UnreadableDocument: `content` is not UTF-8, has a NUL byte where it should be text, or
            is a damaged or encrypted file.
        BlankDocument: the text has no visible character.
        InvalidArgument: the type is unknown, does not fit the body or needs libraries that are
            not installed, the text has a lone surrogate, more than MAX_RUN_CHARS characters
            without white space, or more than MAX_WHITE_SPACE_CHARS of white space in a row.

    Also what `parse` raises.
    """
    mime_type = resolve_mime_type(document)
    field = field_of(document.body)
    require_readable(mime_type)
    _check_size(document.body, field, max_bytes)
    if mime_type in _FOREIGN:
        return _extracted_file(
            parse(_file_of(document.body), mime_type, max_bytes), mime_type, field
        )
    text, pages = _text_of(document.body)
    _check_text(text, field)
    if mime_type not in _READ_HERE:
        return Extracted(ParsedText(text, (), pages))
    content = text.encode()
    if len(content) <= _MAX_READ_HERE_BYTES:
        parse = parser_functions.parse
    read = parse(content, mime_type, max_bytes)
    _check_text(read.text, field)
    return Extracted(ParsedText(read.text, _sections(read), pages), read.title)


def _check_size(body: Body, field: str, max_bytes: int) -> None:
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
    if len(pages) > MAX_PAGES:
        raise TooLarge(
            f"pages has {len(pages)} pages; at most {MAX_PAGES} are allowed", field="pages"
        )
    sizes = (
        _utf8_size(page.text, f"pages[{index}].text", "pages") for index, page in enumerate(pages)
    )
    return sum(sizes) + len(PAGE_BREAK) * max(0, len(pages) - 1)


def _utf8_size(text: str, name: str, field: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{name} has the lone surrogate U+{ord(text[error.start]):04X} at character "
            f"{error.start}; only text that UTF-8 can encode is allowed",
            field=field,
        ) from None


def _file_of(body: Body) -> bytes:
    return body if isinstance(body, bytes) else _text_of(body)[0].encode()


def _text_of(body: Body) -> tuple[str, tuple[PageSpan, ...]]:
    if isinstance(body, str):
        return body, ()
    if isinstance(body, bytes):
        return _decoded(body), ()
    numbers = (page.number or position for position, page in enumerate(body, start=1))
    text, ranges = joined([page.text for page in body])
    return text, _pages(ranges, numbers)


def _decoded(content: bytes) -> str:
    """The text of UTF-8 bytes, without a byte order mark."""
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
    return tuple(PageSpan(number, *where) for number, where in zip(numbers, ranges, strict=True))


def _sections(read: ParsedFile) -> tuple[Section, ...]:
    return tuple(Section(*heading) for heading in read.headings)


def _extracted_file(read: ParsedFile, mime_type: str, field: str) -> Extracted:
    if _VISIBLE.search(read.text) is None:
        raise BlankDocument(_blank(read, mime_type, field), field=field)
    _check_runs(read.text, field)
    pages = _pages(read.pages, range(1, len(read.pages) + 1))
    return Extracted(ParsedText(read.text, _sections(read), pages), read.title)


def _blank(read: ParsedFile, mime_type: str, field: str) -> str:
    if mime_type != PDF:
        return f"{field} is {_FOREIGN[mime_type]} without text"
    return (
        f"{field} is a PDF without text on any of its {len(read.pages)} pages; it may be a scan, "
        "which needs text recognition first"
    )


def _check_text(text: str, field: str) -> None:
    if _VISIBLE.search(text) is None:
        raise BlankDocument(f"{field} is blank; it must hold some visible text", field=field)
    _check_runs(text, field)


def _check_runs(text: str, field: str) -> None:
    """Raises InvalidArgument if a run of the text is too long for the tokenizer."""
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


def _run_chars(text: str, start: int, behind: re.Pattern[str]) -> int:
    """The length of the run from `start` to where `behind` is found."""
    end = behind.search(text, start)
    return (len(text) if end is None else end.start()) - start


def _last_word_chars(window: str) -> int:
    return 0 if window[-1].isspace() else len(window.rsplit(None, 1)[-1])


def _last_white_space_chars(window: str) -> int:
    return len(window) - len(window.rstrip())


def _long_run_start(text: str, longest: int, last_run_chars: Callable[[str], int]) -> int | None:
    """Offset of the first run of more than `longest` characters.

    `last_run_chars` gives the length of the run at the end of a text, 0 if it ends without one.
    Jumps from the end of one run to the last one within the longest allowed, so most characters
    are never examined.
    """
    start = 0
    while len(text) - start > longest:
        window = text[start : start + longest + 1]
        last_run = last_run_chars(window)
        if last_run > longest:
            return start
        start += len(window) - last_run
    return None
