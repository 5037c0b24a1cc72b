"""Text extraction: reads the text, pages, sections and title of a document that a client sent.

Text is extracted before a document is cut into chunks. A document is refused if its type is
unknown, or if its body is too large, unreadable or blank. It is also refused if it has a run of
white space, or a run of other characters, that is so long that it would stall the tokenizer. The
extracted text is never blank, and can always be encoded in UTF-8. Pages and sections are in order
of position. The same document has the same result on every machine. This module does not depend on
tokens, storage or gRPC.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hrag.values.deadline import Deadline
from hrag.values.document_limits import MAX_PAGES, MAX_RUN_CHARS, MAX_WHITE_SPACE_CHARS
from hrag.values.documents import Document, Page
from hrag.values.errors import BlankDocument, InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.formats import (
    CSV,
    DOCX,
    EML,
    EPUB,
    HTML,
    JPEG,
    JSON,
    LATEX,
    MARKDOWN,
    MSG,
    NOTEBOOK,
    ODP,
    ODS,
    ODT,
    PDF,
    PICTURES,
    PNG,
    PPTX,
    PYTHON,
    RST,
    RTF,
    SRT,
    TIFF,
    TSV,
    VTT,
    XLS,
    XLSX,
    XML,
    format_of,
)
from hrag.values.read_report import NO_REPORT, PageUnit, ReadReport
from hrag.values.tree import PageSpan, ParsedText, Section
from indexer_svc.mime_types import Body, field_of, require_readable, resolve_mime_type
from indexer_svc.parsers import parser_functions
from indexer_svc.parsers.parsed_file import (
    PAGE_BREAK,
    Edit,
    PageRange,
    ParsedFile,
    joined,
    moved,
)
from indexer_svc.parsers.parser_pool import Parse
from indexer_svc.text_encoding import DECLARATIONS, UTF_8, DecodedText, check_encoding, decode
from indexer_svc.text_recognition import NO_RECOGNITION, CallRecognition

# The foreign formats: the text of these files must be extracted from markup or from binary data.
# Only a parser process parses these files, even if they are small. Each key is a MIME type, and its
# value is the name of the format in error messages.
_FOREIGN_FORMATS = {
    PDF: "a PDF",
    HTML: "an HTML page",
    DOCX: "a Word document",
    PPTX: "a presentation",
    XLSX: "a workbook",
    XLS: "a workbook",
    ODS: "a workbook",
    EPUB: "an EPUB",
    EML: "a mail",
    MSG: "an Outlook message",
    RTF: "an RTF document",
    ODT: "an OpenDocument text",
    ODP: "an OpenDocument presentation",
    NOTEBOOK: "a notebook",
    LATEX: "a LaTeX text",
    JSON: "a JSON text",
    XML: "an XML text",
    SRT: "a file of subtitles",
    VTT: "a file of subtitles",
    PNG: "a picture",
    JPEG: "a picture",
    TIFF: "a picture",
}
# The indexer's own process parses texts of these formats that have at most
# _MAX_TEXT_BYTES_PARSED_HERE bytes. A parser process parses longer texts, because no other thread
# of a process can run while the process parses. Parsing Markdown of this size that consists only of
# markers takes a tenth of a second.
_TEXT_FORMATS = (MARKDOWN, RST, CSV, TSV, PYTHON)
_MAX_TEXT_BYTES_PARSED_HERE = 16_384
# docutils takes ten times as long, so a parser process parses all reStructuredText.
_NEVER_PARSED_HERE = (RST,)
# Matches a visible character. A text that consists of white space and of these zero-width
# characters is blank.
_VISIBLE = re.compile("[^\\s\u200b\u200c\u200d\u2060\ufeff]")
_WHITE_SPACE, _NO_WHITE_SPACE = re.compile(r"\s"), re.compile(r"\S")
# Python treats these characters as white space, but the tokenizer does not. So they are replaced by
# hyphens before the lengths of runs of characters are measured.
_SEPARATORS = "\x1c\x1d\x1e\x1f"

_NO_RECOGNITION = CallRecognition(None, NO_RECOGNITION.advice)


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text, pages, sections and title of a document's body, its metadata and the report.

    `title` is the title that the body itself contains, at most MAX_TITLE_BYTES bytes of UTF-8, or
    empty if the body contains no title. `metadata` are the fields of the body that become metadata
    of the document where the client has sent none of that name. All depend only on the body and on
    how it is read. `report` says what was read.
    """

    parsed: ParsedText
    title: str = ""
    metadata: Mapping[str, str | list[str]] = field(default_factory=dict)
    report: ReadReport = NO_REPORT


def no_parser(
    _tenant_id: str,
    _deadline: Deadline,
    _content: bytes,
    mime_type: str,
    _max_text_bytes: int,
    _keep_boilerplate: bool,
) -> ParsedFile:
    """Raises UnreadableDocument.

    A pipeline that reads only plain text uses this function in place of a parser.
    """
    raise UnreadableDocument(f"{mime_type} cannot be read without a parser", field="mime_type")


def extract(
    document: Document,
    max_bytes: int,
    parse: Parse,
    recognition: CallRecognition = _NO_RECOGNITION,
) -> Extracted:
    """Returns the text, pages, sections and title of a document's body.

    `max_bytes` limits the body (a file's bytes, or text in UTF-8) and also the text that is
    extracted from the body (in UTF-8). `parse` parses files that are not text (a PDF, for example)
    and long texts. `recognition` parses pictures, and PDFs that have pages without readable text.

    Pages are joined by one blank line and keep their numbers. The pages of a PDF and the slides
    of a presentation are numbered from 1. Sections are the headings of a text, the bookmarks of
    a PDF, the slides of a presentation or the sheets of a workbook. Offsets count code points of
    the returned text.

    The title is the one in the document's front matter or metadata, or else its first heading of
    level 1. Plain text, tables and source code have no title. A workbook has only the title in
    its metadata.

    Bytes that are text are decoded by `text_encoding`.

    Raises:
        TooLarge: the body or the text extracted from it exceeds `max_bytes`, or there are more
            than MAX_PAGES pages.
        UnreadableDocument: `content` is of no format that is read, is not in the encoding that
            the client names, or is a damaged or encrypted file.
        BlankDocument: the text has no visible character.
        InvalidArgument: the type is unknown, does not fit the body, or needs libraries that are
            not installed. Or an encoding is unknown or given for text. Or the text has a lone
            surrogate, a run of more than MAX_RUN_CHARS characters without white space, or a run
            of more than MAX_WHITE_SPACE_CHARS characters of white space.

    Also raises the errors of `parse`.
    """
    mime_type = resolve_mime_type(document)
    field = field_of(document.body)
    require_readable(mime_type, _FOREIGN_FORMATS.get(mime_type, ""))
    _check_encoding(document)
    _check_size(document.body, field, max_bytes)
    decoded = _decode(document, mime_type, max_bytes)
    body = document.body if decoded is None else decoded.text
    if mime_type in _FOREIGN_FORMATS:
        content = _bytes_of(body)
        options = (mime_type, max_bytes, document.keep_boilerplate)
        read = _read_file(content, options, parse, recognition)
        return _with_report(_from_file(read, mime_type, field), mime_type, decoded, read.report)
    text, pages = _text_of(body)
    _check_text(text, field)
    if mime_type not in _TEXT_FORMATS:
        return _with_report(Extracted(ParsedText(text, (), pages)), mime_type, decoded)
    content = text.encode()
    if len(content) <= _MAX_TEXT_BYTES_PARSED_HERE and mime_type not in _NEVER_PARSED_HERE:
        parse = parser_functions.parse
    read = parse(content, mime_type, max_bytes, document.keep_boilerplate)
    _check_text(read.text, field)
    parsed = _parsed_text(read)
    if pages:
        # Pages that a client has sent are pages of that text; a parser's pages are its own.
        parsed = replace(parsed, pages=_moved_pages(pages, read.edits))
    extracted = Extracted(parsed, read.title, read.metadata)
    return _with_report(extracted, mime_type, decoded, read.report)


def _check_encoding(document: Document) -> None:
    """Raises InvalidArgument if the document names an unknown encoding, or one for its text."""
    check_encoding(document.encoding)
    if document.encoding and not isinstance(document.body, bytes):
        raise InvalidArgument(
            f"encoding is {document.encoding}; it is allowed only with content, because "
            f"{field_of(document.body)} is Unicode already",
            field="encoding",
        )


def _decode(document: Document, mime_type: str, max_bytes: int) -> DecodedText | None:
    """Returns the text of bytes in a format that is text; None for other bodies.

    Raises UnreadableDocument, and TooLarge if the text has more than `max_bytes` bytes in UTF-8.
    """
    known = format_of(mime_type)
    if not isinstance(document.body, bytes) or known is None or not known.is_text:
        return None
    decoded = decode(document.body, document.encoding, DECLARATIONS.get(mime_type))
    # A text may be larger in UTF-8, for example a Chinese text of two bytes per character.
    size = 0 if decoded.encoding == UTF_8 else _utf8_size(decoded.text, "content", "content")
    if size > max_bytes:
        raise TooLarge(
            f"content has {size} bytes of text in UTF-8; HRAG_MAX_DOCUMENT_BYTES allows "
            f"{max_bytes}",
            field="content",
            limit="document_bytes",
        )
    return decoded


def _with_report(
    extracted: Extracted,
    mime_type: str,
    decoded: DecodedText | None,
    report: ReadReport = NO_REPORT,
) -> Extracted:
    """Returns `extracted` with the parser's report, to which the counts and encoding are added."""
    complete = replace(
        report,
        mime_type=mime_type,
        encoding="" if decoded is None else decoded.encoding,
        is_encoding_guessed=decoded is not None and decoded.is_guessed,
        page_count=len(extracted.parsed.pages),
        section_count=len(extracted.parsed.sections),
        page_unit=extracted.parsed.page_unit,
    )
    return replace(extracted, report=complete)


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
            f"{field} is {size} bytes; HRAG_MAX_DOCUMENT_BYTES allows {max_bytes}",
            field=field,
            limit="document_bytes",
        )


def _joined_size(pages: Sequence[Page]) -> int:
    """Returns the size, in bytes of UTF-8, of the text into which the pages will be joined.

    Raises TooLarge for more than MAX_PAGES pages, or InvalidArgument for a lone surrogate.
    """
    if len(pages) > MAX_PAGES:
        raise TooLarge(
            f"pages has {len(pages)} pages; at most {MAX_PAGES} are allowed",
            field="pages",
            limit="document_pages",
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
    """Returns the text of a body and the pages that the client has sent. Bytes must be UTF-8."""
    if isinstance(body, str):
        return body, ()
    if isinstance(body, bytes):
        return body.decode(), ()
    text, ranges = joined([page.text for page in body])
    return text, _page_spans(
        [page._replace(number=sent.number) for page, sent in zip(ranges, body, strict=True)]
    )


def _page_spans(
    ranges: Sequence[PageRange], unit: PageUnit = PageUnit.PAGE
) -> tuple[PageSpan, ...]:
    """Returns the pages with their numbers. A page with the number 0 gets its position, from 1.

    A recording also has a second 0. It gets the number 1, because the number 0 says that a chunk
    has no pages.
    """
    return tuple(
        PageSpan(
            page.number or (1 if unit is PageUnit.SECOND else position),
            page.char_start,
            page.char_end,
            page.is_recognised,
        )
        for position, page in enumerate(ranges, start=1)
    )


def _moved_pages(pages: Sequence[PageSpan], edits: Sequence[Edit]) -> tuple[PageSpan, ...]:
    """Returns where the pages of a client's text are after a parser has replaced parts of it."""
    starts = moved([page.char_start for page in pages], edits)
    ends = moved([page.char_end for page in pages], edits)
    return tuple(
        page._replace(char_start=start, char_end=end)
        for page, start, end in zip(pages, starts, ends, strict=True)
    )


def _sections(read: ParsedFile) -> tuple[Section, ...]:
    return tuple(Section(*heading) for heading in read.headings)


def _read_file(
    content: bytes, options: tuple[str, int, bool], parse: Parse, recognition: CallRecognition
) -> ParsedFile:
    """Parses a file, and parses it again with text recognition if pages of it are unread.

    `options` are the arguments of Parse after the content. Most files need no recognition, and the
    process that recognises needs seconds to start. So a file is parsed without recognition first.
    """
    mime_type = options[0]
    if mime_type in PICTURES:
        if recognition.parse is None:
            raise InvalidArgument(
                f"content is {_FOREIGN_FORMATS[mime_type]}, whose text must be recognised; "
                f"{recognition.advice}",
                field="mime_type",
            )
        read = recognition.parse(content, *options)
    else:
        read = parse(content, *options)
        if mime_type == PDF and read.report.unread_pages and recognition.parse is not None:
            try:
                read = recognition.parse(content, *options)
            except (UnreadableDocument, TooLarge) as error:
                if _VISIBLE.search(read.text) is None:
                    raise
                # The text of the other pages is better than no document.
                return _with_advice(read, f"text recognition failed: {error.message}")
    return _with_advice(read, recognition.advice)


def _with_advice(read: ParsedFile, advice: str) -> ParsedFile:
    """Returns the file with the advice in its report if pages are unread."""
    if not read.report.unread_pages:
        return read
    return replace(read, report=replace(read.report, advice=advice))


def _from_file(read: ParsedFile, mime_type: str, field: str) -> Extracted:
    if _VISIBLE.search(read.text) is None:
        raise BlankDocument(_blank_message(read, mime_type, field), field=field)
    _check_runs(read.text, field)
    return Extracted(_parsed_text(read), read.title, read.metadata, read.report)


def _parsed_text(read: ParsedFile) -> ParsedText:
    pages = _page_spans(read.pages, read.page_unit)
    return ParsedText(read.text, _sections(read), pages, read.page_unit)


def _blank_message(read: ParsedFile, mime_type: str, field: str) -> str:
    if mime_type != PDF and mime_type not in PICTURES:
        return f"{field} is {_FOREIGN_FORMATS[mime_type]} without text"
    problem = f"{field} is {_FOREIGN_FORMATS[mime_type]} without readable text"
    if len(read.pages) > 1:
        problem += f" on any of its {len(read.pages)} pages"
    unread = len(read.report.unread_pages)
    if not unread:
        return problem
    pages = "page is a picture" if unread == 1 else "pages are pictures"
    return f"{problem}; {unread} {pages} or cannot be mapped to characters: {read.report.advice}"


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
            limit="run_chars",
        )
    start = _long_run_start(text, MAX_WHITE_SPACE_CHARS, _last_white_space_chars)
    if start is not None:
        raise InvalidArgument(
            f"{field} has {_run_chars(text, start, _NO_WHITE_SPACE)} characters of white space in "
            f"a row from character {start}; at most {MAX_WHITE_SPACE_CHARS} are allowed",
            field=field,
            limit="white_space_chars",
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
