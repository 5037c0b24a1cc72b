"""Writes a mail message as text: its body, its attachments as sections, its metadata.

The modules `mail` and `outlook_message` read messages. This module has what both formats share.

If a body has both plain text and HTML, only one of them is written. The plain text is written,
unless the HTML has more: most of the words, or a structure (headings, lists, tables with headers)
that plain text cannot have.

Each attachment is a section, named like its file. It is read by the same parser as a file that is
sent alone. Messages in messages are read too. The report names the attachments that were not read:
those beyond MAX_ATTACHMENTS or deeper than MAX_DEPTH, those of unknown formats, damaged ones, and
those whose text would make the document too large. Pictures that a body shows are left out.

If exactly one attachment has pages, it is written last, and the pages of the document are its
pages. Otherwise the document has no pages, because several files have the same page numbers.
"""

import codecs
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module

from selectolax.lexbor import LexborHTMLParser

from hrag.values.errors import InvalidArgument, UnreadableDocument
from hrag.values.formats import EML, MSG, PLAIN_TEXT, format_of
from hrag.values.read_report import LeftOutKind, PageUnit
from indexer_svc.file_format import detect
from indexer_svc.parsers import parser_functions
from indexer_svc.parsers.html import write_html
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import FormatFamily
from indexer_svc.parsers.text_lines import with_line_feeds
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.text_encoding import DECLARATIONS, decode, decode_named, load_codecs
from indexer_svc.titles import document_title, section_title

# People attach a few files; automatic mails with logs have some dozens.
MAX_ATTACHMENTS = 100
# A message that was forwarded as an attachment twice is two levels deep.
MAX_DEPTH = 3
_MAX_ADDRESSES = 100
_MAX_ADDRESS_CHARS = 300
_MAX_NAME_CHARS = 150
# All metadata of a document together may have 64 KiB.
_MAX_METADATA_BYTES = 32_768
# The plain text is taken if it has at least this share of the words of the HTML. Some programs
# send "This mail is in HTML" as plain text.
_MIN_WORD_SHARE = 0.7
# For each format of messages, the module with the function `read_message` for it.
_MESSAGE_READERS = {EML: "mail", MSG: "outlook_message"}
_STRUCTURE = "h1, h2, h3, h4, li, th"
# Mail programs add these to signed and encrypted mails; people do not see them as attachments.
_SIGNATURES = frozenset((
    "application/pkcs7-signature", "application/x-pkcs7-signature", "application/pgp-signature",
    "application/pgp-keys", "application/pgp-encrypted",
))  # fmt: skip
# Codecs are modules, and a confined process cannot load modules later. Python's package email uses
# the codecs that are named here.
load_codecs()
for _name in ("idna", "raw_unicode_escape", "utf_8_sig"):
    codecs.lookup(_name)


@dataclass(frozen=True, slots=True)
class Body:
    """A part of a message's text, as plain text, as HTML, or in both forms with the same words."""

    plain: str = ""
    html: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attached file, or an attached message if `message` is set.

    `mime_type` is the type that the sender's program has named; it may be wrong.
    """

    name: str
    mime_type: str = ""
    content: bytes = b""
    message: "Message | None" = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `date` is a time in UTC in the form of RFC 3339, or empty."""

    subject: str = ""
    sender: str = ""
    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()
    date: str = ""
    message_id: str = ""
    bodies: tuple[Body, ...] = ()
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class _AttachmentSection:
    """An attachment that has been read. Exactly one of `file` and `message` is set."""

    name: str
    file: ParsedFile | None = None
    message: Message | None = None

    @property
    def has_pages(self) -> bool:
        """True if the attachment is a file with pages. Rows of a table are no pages here."""
        file = self.file
        return file is not None and bool(file.pages) and file.page_unit is PageUnit.PAGE


def parsed_message(message: Message, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a message with its attachments, its metadata and its subject as title.

    A message without a body has its subject as text. Raises TooLarge if the bodies of the messages
    are too large.
    """
    writer = TextWriter(max_text_bytes)
    return _MessageWriter(writer).parsed(message)


def plain_text(content: bytes, encoding: str = "", mime_type: str = "") -> str:
    """Returns the text of bytes in the encoding that a message names; guesses if that is wrong.

    `mime_type` is the format of the text, which may also declare its encoding. Bytes that are
    invalid become U+FFFD.
    """
    declaration = DECLARATIONS.get(mime_type)
    if encoding:
        with suppress(InvalidArgument, LookupError):
            return decode_named(content, encoding).text
    with suppress(InvalidArgument, LookupError):
        return decode(content, "", declaration).text
    return content.decode("utf-8", "replace")


class _MessageWriter:
    """Writes messages with their attachments, and counts the attachments."""

    def __init__(self, writer: TextWriter) -> None:
        self._writer = writer
        self._count = 0
        self._unread: list[str] = []

    def parsed(self, message: Message) -> ParsedFile:
        self._write_bodies(message)
        sections = self._read(message.attachments)
        paged = [section for section in sections if section.has_pages]
        for section in sections:
            if section not in paged or len(paged) > 1:
                self._write_section(section, 1)
        pages = self._write_file(paged[0], 1) if len(paged) == 1 else None
        self._report_unread()
        title = document_title(message.subject)
        parsed = self._writer.parsed(title, metadata=_metadata(message))
        if pages is None:
            return parsed
        report = replace(parsed.report, recognised_pages=pages.report.recognised_pages)
        return replace(parsed, pages=pages.pages, page_unit=pages.page_unit, report=report)

    def _write_bodies(self, message: Message) -> None:
        length = self._writer.bytes_left
        for body in message.bodies:
            _write_body(body, self._writer)
        if self._writer.bytes_left == length:
            self._writer.paragraph(document_title(message.subject))

    def _read(self, attachments: Sequence[Attachment]) -> list[_AttachmentSection]:
        sections = []
        for attachment in attachments:
            if attachment.mime_type in _SIGNATURES:
                continue
            self._count += 1
            name = section_title(attachment.name)[:_MAX_NAME_CHARS] or f"Attachment {self._count}"
            if self._count > MAX_ATTACHMENTS:
                self._leave_out(name, f"at most {MAX_ATTACHMENTS} attachments are read")
            elif attachment.message is not None:
                sections.append(_AttachmentSection(name, message=attachment.message))
            elif section := self._read_file(attachment, name):
                sections.append(section)
        return sections

    def _read_file(self, attachment: Attachment, name: str) -> _AttachmentSection | None:
        """Reads an attached file; notes in the report if it cannot be read, and returns None."""
        try:
            mime_type = _type_of(attachment)
            if mime_type in _MESSAGE_READERS:
                return _AttachmentSection(name, message=_nested(attachment.content, mime_type))
            parsed = _parsed(attachment.content, mime_type, self._writer.bytes_left)
        except MemoryError:
            raise
        except InvalidArgument as error:
            self._leave_out(name, error.message)
        except Exception as error:  # Libraries raise errors of any kind for damaged files.
            self._leave_out(name, f"{type(error).__name__}: {error}"[:200])
        else:
            if parsed.text.strip():
                return _AttachmentSection(name, file=parsed)
            self._leave_out(name, "it has no text")
        return None

    def _write_section(self, section: _AttachmentSection, depth: int) -> None:
        if section.message is None:
            self._write_file(section, depth)
            return
        if depth >= MAX_DEPTH:
            self._leave_out(
                section.name,
                f"it is in a message inside other messages; at most {MAX_DEPTH} levels are read",
            )
            return
        message = section.message
        self._writer.heading(depth, message.subject or section.name)
        self._writer.paragraph("\n".join(_header_lines(message)))
        self._write_bodies(message)
        for inner in self._read(message.attachments):
            self._write_section(inner, depth + 1)

    def _write_file(self, section: _AttachmentSection, depth: int) -> ParsedFile | None:
        """Writes an attached file; returns it with its pages in this text, or None if left out."""
        file = section.file
        if file is None:
            return None
        size = len(file.text.encode()) + 2 * len(section.name.encode()) + 100
        if size > self._writer.bytes_left:
            self._leave_out(section.name, "its text would make the document too large")
            return None
        self._writer.heading(depth, section.name)
        return replace(file, pages=self._writer.include(file, depth))

    def _leave_out(self, name: str, reason: str) -> None:
        self._unread.append(f"{name}: {reason}")

    def _report_unread(self) -> None:
        """Reports the attachments that were not read. The example in the report names them all."""
        names = [entry.partition(": ")[0] for entry in self._unread]
        example = "; ".join(self._unread if len(names) == 1 else names)
        for at, entry in enumerate(self._unread):
            self._writer.leave_out(LeftOutKind.ATTACHMENT, entry if at else example)


def _write_body(body: Body, writer: TextWriter) -> None:
    if not body.html.strip():
        writer.paragraph(_without_line_spaces(body.plain))
        return
    page = LexborHTMLParser(body.html)
    if body.plain.strip() and not _says_more(page, body.plain):
        writer.paragraph(_without_line_spaces(body.plain))
    else:
        write_html(page, writer)


def _says_more(page: LexborHTMLParser, plain: str) -> bool:
    """Returns True if an HTML body has words or a structure that the plain text does not have."""
    if page.css_first(_STRUCTURE) is not None:
        return True
    words = len(page.body.text(separator=" ").split()) if page.body is not None else 0
    return len(plain.split()) < _MIN_WORD_SHARE * words


def _without_line_spaces(text: str) -> str:
    """Returns a text without carriage returns and without white space at the ends of its lines."""
    return "\n".join(map(str.rstrip, with_line_feeds(text).split("\n")))


def _metadata(message: Message) -> Mapping[str, str | list[str]]:
    """Returns the fields of a message's header, without those that are empty."""
    fields: dict[str, str | list[str]] = {
        "from": _line(message.sender),
        "to": [_line(address) for address in message.to[:_MAX_ADDRESSES]],
        "cc": [_line(address) for address in message.cc[:_MAX_ADDRESSES]],
        "date": message.date,
        "message_id": _line(message.message_id),
    }
    kept: dict[str, str | list[str]] = {}
    size = 0
    for name, value in fields.items():
        size += sum(len(text.encode()) for text in ([value] if isinstance(value, str) else value))
        if value and size <= _MAX_METADATA_BYTES:
            kept[name] = value
    return kept


def _header_lines(message: Message) -> list[str]:
    """Returns the lines that introduce a message in a message."""
    fields = (
        ("From", message.sender),
        ("To", ", ".join(message.to[:_MAX_ADDRESSES])),
        ("Cc", ", ".join(message.cc[:_MAX_ADDRESSES])),
        ("Date", message.date),
    )
    return [f"{name}: {' '.join(value.split())}" for name, value in fields if value.strip()]


def _line(text: str) -> str:
    return " ".join(text.split())[:_MAX_ADDRESS_CHARS].encode("utf-8", "replace").decode()


def _type_of(attachment: Attachment) -> str:
    """Returns the format of an attached file. Raises UnreadableDocument if it is not read."""
    detected = detect(attachment.content, attachment.name)
    named = format_of(attachment.mime_type)
    if detected == PLAIN_TEXT and named is not None and named.is_text:
        return named.mime_type
    return detected


def _parsed(content: bytes, mime_type: str, max_text_bytes: int) -> ParsedFile:
    """Parses an attached file. Raises InvalidArgument, or any error of a library."""
    known = format_of(mime_type)
    if known is not None and known.is_text:
        content = decode(content, "", DECLARATIONS.get(mime_type)).text.encode()
        if mime_type not in parser_functions.READ_FORMATS:
            return ParsedFile(content.decode())
    if parser_functions.format_family(mime_type) is FormatFamily.OCR:
        raise UnreadableDocument("it is a picture", field="content")
    return parser_functions.parse(content, mime_type, max_text_bytes)


def _nested(content: bytes, mime_type: str) -> Message:
    """Reads an attached file that is a message.

    The modules that read messages import this module, so they are found by their names.
    """
    module = import_module(f"indexer_svc.parsers.{_MESSAGE_READERS[mime_type]}")
    message: Message = module.read_message(content)
    return message
