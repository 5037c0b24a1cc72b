"""Mails and Outlook messages with attachments."""

import struct
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from itertools import pairwise

_SECTOR_BYTES, _SMALL_BYTES, _SMALL_LIMIT = 512, 64, 4096
_FREE, _END, _IS_FAT = 0xFFFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFD
_STORAGE, _STREAM, _ROOT = 1, 2, 5
_TEXT, _BINARY, _INTEGER = 0x001F, 0x0102, 0x0003
_PROPERTIES = "__properties_version1.0"

Tree = Mapping[str, "bytes | Tree"]
"""The files of a storage by their names; a file that is a mapping is a storage."""


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
    properties: Mapping[int, str | bytes | int],
    recipients: Sequence[Mapping[int, str | bytes | int]] = (),
    attachments: Sequence[Mapping[int, str | bytes | int]] = (),
    messages: Sequence[Mapping[int, str | bytes | int]] = (),
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


def _storage(properties: Mapping[int, str | bytes | int], offset: int) -> dict[str, "bytes | Tree"]:
    table = [bytes(offset)]
    files: dict[str, bytes | Tree] = {}
    for number, value in properties.items():
        if isinstance(value, int):
            kind, stored = _INTEGER, value
        else:
            kind = _TEXT if isinstance(value, str) else _BINARY
            data = value.encode("utf-16-le") if isinstance(value, str) else value
            files[f"__substg1.0_{number:04X}{kind:04X}"] = data
            stored = len(data)
        table.append(struct.pack("<HHIq", kind, number, 6, stored))
    return {_PROPERTIES: b"".join(table), **files}


def ole_archive(root: Tree) -> bytes:
    """Returns an OLE file (MS-CFB) with these files. Files below 4 KB are in the mini stream."""
    entries: list[bytearray] = [bytearray()]
    small, small_fat = bytearray(), []
    sectors: list[bytes] = []
    fat: list[int] = []

    def store(content: bytes) -> int:
        first = len(sectors)
        count = -(-len(content) // _SECTOR_BYTES)
        for index in range(count):
            part = content[index * _SECTOR_BYTES : (index + 1) * _SECTOR_BYTES]
            sectors.append(part.ljust(_SECTOR_BYTES, b"\0"))
            fat.append(first + index + 1 if index + 1 < count else _END)
        return first if count else _END

    def store_small(content: bytes) -> int:
        first = len(small_fat)
        count = -(-len(content) // _SMALL_BYTES)
        small.extend(content.ljust(count * _SMALL_BYTES, b"\0"))
        small_fat.extend(range(first + 1, first + count))
        small_fat.extend([_END] if count else [])
        return first if count else _END

    def add(files: Tree) -> int:
        """Adds the entries of a storage as a chain; returns the number of the first one."""
        numbers = []
        for name, content in files.items():
            number = len(entries)
            numbers.append(number)
            entries.append(bytearray())
            if isinstance(content, bytes):
                is_small = len(content) < _SMALL_LIMIT
                start = store_small(content) if is_small else store(content)
                entries[number] = _entry(name, _STREAM, start=start, size=len(content))
            else:
                entries[number] = _entry(name, _STORAGE, child=add(content))
        for number, following in pairwise(numbers):
            struct.pack_into("<I", entries[number], 72, following)
        return numbers[0] if numbers else _FREE

    child = add(root)
    mini_start = store(bytes(small))
    entries[0] = _entry("Root Entry", _ROOT, child=child, start=mini_start, size=len(small))
    directory = store(b"".join(entries))
    mini_fat = store(struct.pack(f"<{len(small_fat)}I", *small_fat))
    fat_count = 1
    while (len(fat) + fat_count) * 4 > fat_count * _SECTOR_BYTES:
        fat_count += 1
    fat_start = len(sectors)
    chain = [*fat, *[_IS_FAT] * fat_count]
    table = struct.pack(f"<{len(chain)}I", *chain).ljust(fat_count * _SECTOR_BYTES, b"\xff")
    header = bytearray(_SECTOR_BYTES)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    struct.pack_into("<HHHHH", header, 24, 0x3E, 3, 0xFFFE, 9, 6)
    struct.pack_into("<II", header, 44, fat_count, directory)
    mini_count = -(-len(small_fat) * 4 // _SECTOR_BYTES)
    struct.pack_into("<IIIII", header, 56, _SMALL_LIMIT, mini_fat, mini_count, _END, 0)
    first_fats = list(range(fat_start, fat_start + fat_count))
    struct.pack_into("<109I", header, 76, *(first_fats + [_FREE] * 109)[:109])
    return bytes(header) + b"".join(sectors) + table


def _entry(
    name: str, kind: int, *, child: int = _FREE, start: int = _END, size: int = 0
) -> bytearray:
    encoded = name.encode("utf-16-le")
    entry = bytearray(128)
    entry[: len(encoded)] = encoded
    struct.pack_into("<HBBIII", entry, 64, len(encoded) + 2, kind, 1, _FREE, _FREE, child)
    struct.pack_into("<IQ", entry, 116, start, size)
    return entry
