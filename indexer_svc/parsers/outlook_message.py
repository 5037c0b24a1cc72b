"""Parses Outlook messages (MSG, MS-OXMSG), with the library python-oxmsg.

A message is a storage, which is a folder in an OLE file. It has a table of properties, and a
storage for each recipient and each attachment. A message that is attached to another one is a
storage in the storage of its attachment. `message` describes what a body becomes, and how
attachments are read.

The body has one or several of these forms: plain text, HTML, compressed rich text (MS-OXRTFCP).
Rich text is read only if there is no other form.

The streams of a hostile file may share their bytes, so that a small file would take gigabytes of
memory. So the sizes of all streams are added before any stream is read.
"""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import policy
from email.parser import HeaderParser
from io import BytesIO
from typing import Any

from olefile import OleFileIO
from oxmsg.domain import constants
from oxmsg.domain.encodings import encoding_from_codepage
from oxmsg.storage import Storage

from hrag.values.errors import TooLarge, UnreadableDocument
from hrag.values.formats import HTML
from indexer_svc.parsers.mail import header_fields, utc_time
from indexer_svc.parsers.message import Attachment, Body, Message, parsed_message, plain_text
from indexer_svc.parsers.package import readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.rtf import parse_rtf

_KIND = "an Outlook message (MSG)"
_FIELD = "content"
# The offset of the first property in the table of each kind of storage.
_ROOT_OFFSET, _INNER_OFFSET, _OTHER_OFFSET = 32, 24, 8
_PROPERTY = struct.Struct("<HH4xq")
_MASK = 0xFFFF_FFFF
_TABLE = "__properties_version1.0"
_TIME_ORIGIN = datetime(1601, 1, 1, tzinfo=UTC)
_TO, _CC = 1, 2
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".emz", ".wmz")
_INNER_MESSAGE = "__substg1.0_3701000D"
_MAX_RECIPIENTS = 1_000
# Messages that are nested more deeply are not read. `parsed_message` reads even fewer levels.
_MAX_DEPTH = 10
# The streams of an ordinary file together are not larger than the file, except for the unused ends
# of their last sectors. If they are larger than this, they share their bytes.
_MAX_STREAM_BYTES_RATIO = 2
_MAX_BODY_BYTES = 32 << 20

# The compression of rich text (MS-OXRTFCP 2.1.2.1) begins with this dictionary.
_DICTIONARY = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern "
    b"\\fscript \\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0"
    b"\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
_DICTIONARY_BYTES = 4_096
_RTF_HEADER = struct.Struct("<IIII")
_COMPRESSED, _UNCOMPRESSED = 0x75465A4C, 0x414C454D


def parse_outlook_message(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a message, its attachments as sections, its subject as title.

    Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        return parsed_message(read_message(content), max_text_bytes)


def read_message(content: bytes) -> Message:
    """Returns the message in a file. Raises TooLarge, or any error of a library."""
    with OleFileIO(BytesIO(content)) as ole:
        sizes = sum(entry.size for entry in ole.direntries if entry is not None)
        if sizes > _MAX_STREAM_BYTES_RATIO * len(content):
            raise TooLarge(
                f"content is {_KIND} whose streams have {sizes} bytes in total; at most "
                f"{_MAX_STREAM_BYTES_RATIO * len(content)} are allowed, which is "
                f"{_MAX_STREAM_BYTES_RATIO} times the size of the file",
                field=_FIELD,
            )
        root = Storage.from_ole(ole)
    if all(file.name != _TABLE for file in root.streams):
        raise UnreadableDocument(
            f"content is not {_KIND}: it is another OLE file, without properties", field=_FIELD
        )
    return _message(root, _ROOT_OFFSET, 0)


def _message(storage: Storage, offset: int, depth: int) -> Message:
    table = _PropertyTable(storage, offset)
    headers = table.text(constants.PID_TRANSPORT_MESSAGE_HEADERS)
    fields = header_fields(HeaderParser(policy=policy.default).parsestr(headers.lstrip()))
    people = list(_recipients(storage))
    sent = table.time(constants.PID_CLIENT_SUBMIT_TIME) or table.time(constants.PID_CREATION_TIME)
    fields["subject"] = table.text(constants.PID_SUBJECT) or fields["subject"]
    fields["sender"] = fields["sender"] or _sender(table)
    for name, kind in (("to", _TO), ("cc", _CC)):
        named = tuple(address for type_, address in people if type_ == kind and address)
        fields[name] = fields[name] or named
    fields["date"] = fields["date"] or (utc_time(sent) if sent else "")
    return Message(
        **fields,
        bodies=(_body(table),),
        attachments=tuple(_attachments(storage, depth)),
    )


class _PropertyTable:
    """The properties of a storage. Properties that are missing or damaged are empty.

    A property of fixed size is in the table. Any other property is a file whose name has the
    property's id and type.
    """

    def __init__(self, storage: Storage, offset: int) -> None:
        self._files = {file.name: file.bytes_ for file in storage.streams}
        data = self._files.get(_TABLE, b"")[offset:]
        whole = len(data) - len(data) % _PROPERTY.size
        self._values = {
            (name, kind): value for kind, name, value in _PROPERTY.iter_unpack(data[:whole])
        }

    def text(self, name: int) -> str:
        """Returns a text, which is in UTF-16 or in the code page of the message."""
        text = self._files.get(_file_name(name, constants.PTYP_STRING))
        if text is not None:
            return text.decode("utf-16-le", "replace").rstrip("\0")
        return plain_text(
            self._files.get(_file_name(name, constants.PTYP_STRING8), b"").rstrip(b"\0")
        )

    def binary(self, name: int) -> bytes:
        return self._files.get(_file_name(name, constants.PTYP_BINARY), b"")

    def integer(self, name: int) -> int:
        """Returns an integer or a truth value; 0 if there is none."""
        kinds = (constants.PTYP_INTEGER_32, constants.PTYP_BOOLEAN)
        return next((self._values[name, k] & _MASK for k in kinds if (name, k) in self._values), 0)

    def time(self, name: int) -> datetime | None:
        """Returns a time, which is in units of 100 nanoseconds since the year 1601."""
        ticks = self._values.get((name, constants.PTYP_TIME), 0)
        try:
            return _TIME_ORIGIN + timedelta(microseconds=ticks // 10) if ticks > 0 else None
        except OverflowError:
            return None

    @property
    def encoding(self) -> str:
        """The encoding of HTML, or empty if the message names none that is known."""
        try:
            return encoding_from_codepage(self.integer(constants.PID_INTERNET_CODEPAGE))
        except Exception:  # python-oxmsg has a special class of errors for unknown code pages.
            return ""


def _file_name(name: int, kind: int) -> str:
    return f"__substg1.0_{name:04X}{kind:04X}"


def _sender(table: _PropertyTable) -> str:
    address = table.text(constants.PID_SENDER_SMTP_ADDRESS) or table.text(
        constants.PID_SENDER_EMAIL_ADDRESS
    )
    return _person(table.text(constants.PID_SENDER_NAME), address)


def _person(name: str, address: str) -> str:
    """Returns a name with a mail address. An address of Exchange, without `@`, is left out."""
    name = name.strip().strip("'\"")
    if "@" not in address:
        return name
    return f"{name} <{address}>" if name and name.lower() != address.lower() else address


def _recipients(storage: Storage) -> Iterator[tuple[int, str]]:
    """Yields the type and the name of each recipient."""
    for number, inner in enumerate(storage.iter_recipient_storages()):
        if number == _MAX_RECIPIENTS:
            return
        table = _PropertyTable(inner, _OTHER_OFFSET)
        address = table.text(constants.PID_SMTP_ADDRESS) or table.text(constants.PID_EMAIL_ADDRESS)
        yield (
            table.integer(constants.PID_RECIPIENT_TYPE),
            _person(table.text(constants.PID_DISPLAY_NAME), address),
        )


def _body(table: _PropertyTable) -> Body:
    html = table.binary(constants.PID_HTML)
    html_text = plain_text(html, table.encoding, HTML) if html else ""
    body = Body(table.text(constants.PID_BODY), html_text or table.text(constants.PID_BODY_HTML))
    if body.plain.strip() or body.html.strip():
        return body
    compressed = table.binary(constants.PID_RTF_COMPRESSED)
    return Body(parse_rtf(_decompressed(compressed), _MAX_BODY_BYTES).text) if compressed else body


def _decompressed(content: bytes) -> bytes:
    """Returns rich text that is compressed by the algorithm LZFu (MS-OXRTFCP 3.1.3).

    A control byte says for the next eight items whether each is a byte, or an offset and a length
    in the dictionary, which has the last 4,096 bytes. Text grows at most by the factor 9.
    """
    _size, raw_size, kind, _checksum = _RTF_HEADER.unpack_from(content)
    if kind == _UNCOMPRESSED:
        return content[_RTF_HEADER.size : _RTF_HEADER.size + raw_size]
    if kind != _COMPRESSED:
        raise ValueError("the compression of the rich text is unknown")
    dictionary = bytearray(_DICTIONARY.ljust(_DICTIONARY_BYTES, b" "))
    position = len(_DICTIONARY)
    text = bytearray()
    items = iter(content[_RTF_HEADER.size :])
    for control in items:
        for bit in range(8):
            first = next(items, None)
            if first is None:
                return bytes(text)
            if control >> bit & 1:
                second = next(items, 0)
                start, length = first << 4 | second >> 4, (second & 15) + 2
                if start == position:
                    return bytes(text)
            else:
                start, length = -1, 1
            for index in range(length):
                byte = first if start < 0 else dictionary[(start + index) % _DICTIONARY_BYTES]
                text.append(byte)
                dictionary[position] = byte
                position = (position + 1) % _DICTIONARY_BYTES
    return bytes(text)


def _attachments(storage: Storage, depth: int) -> Iterator[Attachment]:
    """Yields the attachments that the message shows as files, and the messages attached to it."""
    for inner in storage.iter_attachment_storages():
        table = _PropertyTable(inner, _OTHER_OFFSET)
        name = table.text(constants.PID_ATTACH_LONG_FILENAME) or table.text(
            constants.PID_ATTACH_FILENAME
        )
        name = name or table.text(constants.PID_DISPLAY_NAME)
        message: Any = next((s for s in inner.storages if s.name == _INNER_MESSAGE), None)
        if message is not None:
            if depth < _MAX_DEPTH:
                yield Attachment(name, message=_message(message, _INNER_OFFSET, depth + 1))
            continue
        kind = table.text(constants.PID_ATTACH_MIME_TAG).lower()
        if not _is_shown_picture(table, kind, name):
            yield Attachment(name, kind, table.binary(constants.PID_ATTACH_DATA_BINARY))


def _is_shown_picture(table: _PropertyTable, kind: str, name: str) -> bool:
    """Returns True for a picture that the body shows, for example a logo."""
    is_picture = kind.startswith("image/") or name.lower().endswith(_PICTURES)
    is_hidden = table.integer(constants.PID_ATTACHMENT_HIDDEN) != 0
    return is_picture and (is_hidden or bool(table.text(constants.PID_ATTACH_CONTENT_ID)))
