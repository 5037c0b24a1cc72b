"""Mails and Outlook messages with attachments."""

import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from email.message import EmailMessage

from tests.support.documents.ole_files import Tree, ole_archive

_TEXT, _BINARY, _INTEGER, _TIME = 0x001F, 0x0102, 0x0003, 0x0040
_MAX_TIME = (1 << 63) - 1
_PROPERTIES = "__properties_version1.0"

Property = str | bytes | int | timedelta
"""The value of a property. A time is the time since the year 1601."""


def mail_file(
    text: str = "Bees dance.",
    html: str = "",
    attachments: Sequence[tuple[str, str, bytes]] = (),
    messages: Sequence[EmailMessage] = (),
    **headers: str,
) -> bytes:
    """Returns a mail. Each attachment has a name, a MIME type and its bytes."""
    return mail(text, html, attachments, messages, **headers).as_bytes()


def mail(
    text: str = "Bees dance.",
    html: str = "",
    attachments: Sequence[tuple[str, str, bytes]] = (),
    messages: Sequence[EmailMessage] = (),
    **headers: str,
) -> EmailMessage:
    """Returns a mail like `mail_file`, which can be attached to another mail."""
    message = EmailMessage()
    for name, value in {"Subject": "The dance", "From": "Ann <ann@bee.example>", **headers}.items():
        message[name.replace("_", "-")] = value
    if text:
        message.set_content(text)
    if html and text:
        message.add_alternative(html, subtype="html")
    elif html:
        message.set_content(html, subtype="html")
    for name, mime_type, content in attachments:
        kind, _, subtype = mime_type.partition("/")
        message.add_attachment(content, maintype=kind, subtype=subtype, filename=name)
    for inner in messages:
        message.add_attachment(inner)
    return message


def msg_file(
    properties: Mapping[int, Property],
    recipients: Sequence[Mapping[int, Property]] = (),
    attachments: Sequence[Mapping[int, Property]] = (),
    messages: Sequence[Mapping[int, Property]] = (),
) -> bytes:
    """Returns an Outlook message. The properties are by their ids; see MS-OXPROPS.

    `messages` are the properties of attached messages.
    """
    root = dict(_storage(properties, 32))
    for number, recipient in enumerate(recipients):
        root[f"__recip_version1.0_#{number:08X}"] = _storage(recipient, 8)
    for number, attachment in enumerate(attachments):
        root[f"__attach_version1.0_#{number:08X}"] = _storage(attachment, 8)
    for number, inner in enumerate(messages, start=len(attachments)):
        storage = {**_storage({0x3705: 5}, 8), "__substg1.0_3701000D": _storage(inner, 24)}
        root[f"__attach_version1.0_#{number:08X}"] = storage
    return ole_archive(root)


def _storage(properties: Mapping[int, Property], offset: int) -> dict[str, "bytes | Tree"]:
    table = [bytes(offset)]
    files: dict[str, bytes | Tree] = {}
    for number, value in properties.items():
        if isinstance(value, int):
            kind, stored = _INTEGER, value
        elif isinstance(value, timedelta):
            kind, stored = _TIME, min(value // timedelta(microseconds=1) * 10, _MAX_TIME)
        else:
            kind = _TEXT if isinstance(value, str) else _BINARY
            data = value.encode("utf-16-le") if isinstance(value, str) else value
            files[f"__substg1.0_{number:04X}{kind:04X}"] = data
            stored = len(data)
        table.append(struct.pack("<HHIq", kind, number, 6, stored))
    return {_PROPERTIES: b"".join(table), **files}
