"""Parses mails (EML: RFC 5322 and MIME) with Python's email package and its modern policy.

The plain text and the HTML in a set of alternatives become one body. Text parts without a file name
are bodies too. All other parts are attachments, except pictures that the body shows, and further
alternatives. `message` describes what a body becomes, and how attachments are read.

The package parses broken mails without errors, so a file counts as a mail if it begins with a
field of a header. Parsing a field takes a hundred times as long as the rest of the work for its
characters. So values are cut before they are parsed, and each one is parsed only once.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email import policy
from email.headerregistry import Address
from email.parser import BytesParser
from functools import lru_cache
from typing import Any

from hrag.values.errors import UnreadableDocument
from hrag.values.formats import HTML
from indexer_svc.parsers.message import Attachment, Body, Message, parsed_message, plain_text
from indexer_svc.parsers.package import readable
from indexer_svc.parsers.parsed_file import ParsedFile

_KIND = "a mail (EML)"
_FIELD = "content"
_FIELD_NAME = re.compile(rb"[!-9;-~]{1,100}[ \t]*:")
_MBOX_LINE = re.compile(rb"From [^\n]{0,1000}\n")
_BLANKS = b"\xef\xbb\xbf \t\r\n"
# A header with more characters is cut: 100 addresses have about 5,000.
_MAX_VALUE_CHARS = 8_192
# The fields that describe a part. A file name of 255 Chinese characters is written in 2,300.
_PART_FIELDS = "content-"
_MAX_PART_VALUE_CHARS = 4_000
_FLOWED = "flowed"
_QUOTE = re.compile(r">*")
_SIGNATURE_LINE = "-- "
_ENCRYPTED = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")


class _MailPolicy(policy.EmailPolicy):
    """The modern policy of the package, which parses each field of a part only once.

    The package itself parses a field whenever the value is asked for, about ten times for each
    part.
    """

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        """Returns the name and the value of a field as they are written, cut if it is long."""
        name, value = super().header_source_parse(sourcelines)
        is_of_part = name.lower().startswith(_PART_FIELDS)
        return name, value[:_MAX_PART_VALUE_CHARS] if is_of_part else value

    def header_fetch_parse(self, name: str, value: str) -> Any:
        """Returns the value of a field as the modern policy parses it, or as it is written."""
        return _parsed_field(name, value)


@lru_cache(maxsize=4)
def _parsed_field(name: str, value: str) -> Any:
    try:
        return policy.default.header_fetch_parse(name, value)
    except Exception:  # The package raises errors of many kinds for malformed fields.
        return value


def parse_mail(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a mail, its attachments as sections, its subject as title.

    Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        return parsed_message(read_message(content), max_text_bytes)


def read_message(content: bytes) -> Message:
    """Returns the message in a file. Raises UnreadableDocument if the file is not a mail."""
    start = content.lstrip(_BLANKS)
    if mbox_line := _MBOX_LINE.match(start):
        start = start[mbox_line.end() :]
    if not _FIELD_NAME.match(start):
        raise UnreadableDocument(
            f"content is not {_KIND}: it does not begin with the fields of a header", field=_FIELD
        )
    mail = BytesParser(policy=_MailPolicy()).parsebytes(start)
    message = _message(mail)
    is_encrypted = mail.get_content_type() in _ENCRYPTED
    if is_encrypted and not any(body.plain or body.html for body in message.bodies):
        raise UnreadableDocument(
            "content is an encrypted mail; decrypt it in the mail program and save it again",
            field=_FIELD,
        )
    return message


def header_fields(mail: Any) -> dict[str, Any]:
    """Returns the fields of a mail's header that become metadata, as arguments of `Message`."""
    raw = {name.lower(): value for name, value in reversed(list(mail.raw_items()))}
    return {
        "subject": _text(raw, "subject"),
        "sender": ", ".join(_addresses(raw, "from")) or _text(raw, "sender"),
        "to": _addresses(raw, "to"),
        "cc": _addresses(raw, "cc"),
        "date": _date(raw),
        "message_id": _text(raw, "message-id").strip("<> "),
    }


def utc_time(time: datetime) -> str:
    """Returns a time in UTC in the form of RFC 3339. A time without a zone is in UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return aware.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _message(mail: Any) -> Message:
    bodies: list[Body] = []
    attachments: list[Attachment] = []
    for part in _parts(mail):
        if isinstance(part, Body):
            bodies.append(part)
        else:
            attachments.append(part)
    return Message(**header_fields(mail), bodies=tuple(bodies), attachments=tuple(attachments))


def _parts(mail: Any) -> Iterator[Body | Attachment]:
    """Yields the bodies and attachments of a mail in order, without those of attached mails."""
    open_parts: list[Any] = [mail]
    while open_parts:
        part = open_parts.pop()
        kind = part.get_content_type()
        if kind == "multipart/alternative" and part.is_multipart():
            leaves = list(_leaves(part))
            yield Body(_texts(leaves, "text/plain"), _texts(leaves, HTML))
            # Other forms of the body, for example an invitation for calendars, are left out.
            open_parts.extend(leaf for leaf in reversed(leaves) if _is_attached(leaf))
        elif part.is_multipart() and part.get_content_maintype() == "multipart":
            open_parts.extend(reversed(_children(part)))
        elif _is_body(part):
            text = _content_text(part)
            yield Body(html=text) if kind == HTML else Body(plain=text)
        elif not _is_shown_picture(part):
            yield _attachment(part, kind)


def _children(part: Any) -> list[Any]:
    payload = part.get_payload()
    return payload if isinstance(payload, list) else []


def _leaves(part: Any) -> Iterator[Any]:
    """Yields the innermost parts of a part, and the mails attached in it, in order."""
    open_parts = [part]
    while open_parts:
        inner = open_parts.pop()
        if inner.is_multipart() and inner.get_content_maintype() == "multipart":
            open_parts.extend(reversed(_children(inner)))
        else:
            yield inner


def _texts(leaves: Sequence[Any], kind: str) -> str:
    """Returns the text of all bodies of a type. Some programs divide the HTML at attachments."""
    return "\n".join(_content_text(leaf) for leaf in leaves if _is_body(leaf, kind))


def _is_attached(leaf: Any) -> bool:
    """Returns True if a part of a set of alternatives is an attachment and no form of the body."""
    if leaf.get_content_type() == "text/calendar" or _is_body(leaf):
        return False
    return leaf.is_multipart() or bool(leaf.get_filename() or leaf.get_content_disposition())


def _is_body(part: Any, kind: str = "") -> bool:
    """Returns True if a part is text that is shown as a part of the message, of type `kind`."""
    if part.get_content_disposition() == "attachment" or part.get_filename():
        return False
    return part.get_content_type() in ((kind,) if kind else ("text/plain", HTML))


def _is_shown_picture(part: Any) -> bool:
    """Returns True for a picture that is a part of the body, for example a logo."""
    if part.get_content_maintype() != "image":
        return False
    disposition = part.get_content_disposition()
    return disposition == "inline" or (disposition is None and part.get("content-id") is not None)


def _content_text(part: Any) -> str:
    charset = part.get_param("charset")
    text = plain_text(
        part.get_payload(decode=True) or b"",
        charset if isinstance(charset, str) else "",
        part.get_content_type(),
    )
    is_flowed = str(part.get_param("format", "")).lower() == _FLOWED
    return _unflowed(text, str(part.get_param("delsp", "")).lower() == "yes") if is_flowed else text


def _unflowed(text: str, deletes_spaces: bool) -> str:
    """Returns text of RFC 3676 with each paragraph on one line.

    A line that ends with a space continues on the next line, if both are quoted equally deep.
    """
    lines: list[list[str]] = []
    joins = False
    depth = 0
    for line in text.replace("\r\n", "\n").split("\n"):
        quotes = _QUOTE.match(line)
        quoted = quotes.end() if quotes else 0
        words = line[quoted:].removeprefix(" ")
        if joins and quoted == depth and words != _SIGNATURE_LINE:
            if deletes_spaces:
                lines[-1][-1] = lines[-1][-1][:-1]
            lines[-1].append(words)
        else:
            lines.append([f"{'>' * quoted} {words}" if quoted else words])
        joins = words.endswith(" ") and words != _SIGNATURE_LINE
        depth = quoted
    return "\n".join(map("".join, lines))


def _attachment(part: Any, kind: str) -> Attachment:
    name = part.get_filename() or ""
    if kind == "message/rfc822" and part.is_multipart():
        inner = _children(part)
        # Mails that are nested deeper than Python's limit of recursion have not been parsed.
        message = _message(_decoded_mail(part, inner[0])) if inner else Message()
        return Attachment(name or message.subject, kind, message=message)
    if part.is_multipart():  # For example a report of a mail server.
        return Attachment(name or kind, kind, _as_bytes(part))
    return Attachment(_base_name(str(name)), kind, part.get_payload(decode=True) or b"")


def _decoded_mail(part: Any, mail: Any) -> Any:
    """Returns an attached mail, decoded if it is in Base64.

    RFC 2046 forbids this encoding for mails, but some mail programs use it. The package reads its
    lines as the body of a mail without a header.
    """
    if mail.keys() or str(part.get("content-transfer-encoding", "")).strip().lower() != "base64":
        return mail
    try:
        content = b64decode("".join(str(mail.get_payload()).split()), validate=True)
    except ValueError:
        return mail
    return BytesParser(policy=_MailPolicy()).parsebytes(content)


def _as_bytes(part: Any) -> bytes:
    return b"\n\n".join(
        b"\n".join(
            f"{name}: {value}".encode("utf-8", "replace") for name, value in inner.raw_items()
        )
        for inner in _children(part)
    )


def _base_name(name: str) -> str:
    """Returns the name of a file without folders, which some programs add."""
    return re.split(r"[/\\]", name.strip())[-1]


def _text(raw: dict[str, Any], name: str) -> str:
    """Returns the value of a field without the encoding of RFC 2047; empty if it is missing."""
    value = _parsed_value(raw, name)
    return "" if value is None else " ".join(str(value).split())


def _parsed_value(raw: dict[str, Any], name: str) -> Any:
    """Returns a field as the modern policy parses it, or as it is written if parsing fails."""
    if name not in raw:
        return None
    written = str(raw[name])[:_MAX_VALUE_CHARS]
    # Bytes beyond ASCII, which a header must not have, are lone surrogates after parsing.
    written = plain_text(written.encode("utf-8", "surrogateescape"))
    try:
        return policy.default.header_factory(name, " ".join(written.split()))
    except Exception:  # The package raises errors of many kinds for malformed fields.
        return written


def _addresses(raw: dict[str, Any], name: str) -> tuple[str, ...]:
    value = _parsed_value(raw, name)
    if value is None:
        return ()
    try:
        shown = tuple(_shown_address(address) for address in value.addresses)
    except Exception:  # See `_parsed_value`.
        shown = ()
    return tuple(filter(None, shown)) or tuple(filter(None, (_text(raw, name),)))


def _shown_address(address: Address) -> str:
    name, mailbox = address.display_name.strip(), address.addr_spec.strip("<> ")
    return f"{name} <{mailbox}>" if name and mailbox else name or mailbox


def _date(raw: dict[str, Any]) -> str:
    value = _parsed_value(raw, "date")
    time = getattr(value, "datetime", None)
    try:
        return utc_time(time) if isinstance(time, datetime) else ""
    except (ValueError, OverflowError):  # The time is out of the range of dates.
        return ""
