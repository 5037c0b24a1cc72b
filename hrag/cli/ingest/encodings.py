"""Texts that are not UTF-8: their encoding is detected, and binary files are refused."""

import codecs

from hrag.cli.ingest.input_document import Unreadable

_UTF_8 = "utf-8"
# Without a byte order mark and without a NUL, any few bytes would pass for these.
_NEED_NUL = ["utf_16_be", "utf_16_le", "utf_32_be", "utf_32_le"]


def decoded(body: bytes, encoding: str = "") -> tuple[bytes, str]:
    """Returns the text of `body` in UTF-8, and the encoding it had, empty if that was UTF-8.

    `encoding` is used instead of the detected one. Raises Unreadable for what is no text.
    """
    if encoding:
        return _with(body, encoding)
    if b"\0" not in body:
        try:
            body.decode()
        except UnicodeDecodeError:
            return _detected(body, _NEED_NUL)
        return body, ""
    return _detected(body, [])


def _with(body: bytes, encoding: str) -> tuple[bytes, str]:
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"it is not {encoding}: byte 0x{body[error.start]:02X} at offset {error.start:,}"
        ) from None
    name = codecs.lookup(encoding).name
    return text.encode(errors="replace"), "" if name == _UTF_8 else name


def _detected(body: bytes, excluded: list[str]) -> tuple[bytes, str]:
    from charset_normalizer import from_bytes, is_binary  # noqa: PLC0415  # It is slow to import.

    best = from_bytes(body, cp_exclusion=excluded).best()
    if best is None or is_binary(body):
        raise Unreadable("it is neither text in a known encoding nor of a known format")
    return str(best).encode(errors="replace"), best.encoding
