"""Texts that are not UTF-8: their encoding is detected, and what is no text is refused.

A guess that may be wrong is refused too: damaged UTF-8, and texts too short to guess from.
"""

import codecs

from hrag.cli.ingest.input_document import Unreadable

_UTF_8 = "utf-8"
_HINT = "--encoding says which encoding it has"
_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
# Without a byte order mark and without a NUL, any few bytes would pass for these.
_NEED_NUL = ["utf_16_be", "utf_16_le", "utf_32_be", "utf_32_le"]
# Below, half of the guesses are wrong; measured with sentences in 21 encodings.
_MIN_GUESSED_BYTES = 32


def decoded(body: bytes, encoding: str = "") -> tuple[bytes, str]:
    """Returns the text of `body` in UTF-8, and the encoding it had, empty if that was UTF-8.

    `encoding` is used instead of the detected one. Raises Unreadable for what is no text, for
    UTF-8 that is cut or has a few wrong bytes, and for a text too short to tell its encoding.
    """
    if encoding:
        return _with(body, encoding)
    if b"\0" not in body:
        try:
            body.decode()
        except UnicodeDecodeError as error:
            if error.end == len(body) or _is_mostly_utf_8(body):
                raise Unreadable(f"{_problem(_UTF_8, error)}; {_HINT}") from None
            return _detected(body, _NEED_NUL)
        return body, ""
    return _detected(body, [])


def _with(body: bytes, encoding: str) -> tuple[bytes, str]:
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(_problem(encoding, error)) from None
    name = codecs.lookup(encoding).name
    return text.encode(errors="replace"), "" if name == _UTF_8 else name


def _problem(encoding: str, error: UnicodeDecodeError) -> str:
    wrong = error.object[error.start]
    return f"it is not {encoding}: byte 0x{wrong:02X} at offset {error.start:,}"


def _is_mostly_utf_8(body: bytes) -> bool:
    """Whether at least as many characters beyond ASCII are valid in UTF-8 as are not.

    Of sentences in other encodings, 28 % at most pass for valid, in EUC-JP.
    """
    text = body.decode(errors="replace")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    own_marks = body.count("\N{REPLACEMENT CHARACTER}".encode())
    wrong = text.count("\N{REPLACEMENT CHARACTER}") - own_marks
    return beyond_ascii - wrong >= wrong


def _detected(body: bytes, excluded: list[str]) -> tuple[bytes, str]:
    from charset_normalizer import from_bytes, is_binary  # noqa: PLC0415  # It is slow to import.

    best = from_bytes(body, cp_exclusion=excluded).best()
    if best is None or is_binary(body):
        raise Unreadable("it is neither text in a known encoding nor of a known format")
    if len(body) < _MIN_GUESSED_BYTES and not body.startswith(_BYTE_ORDER_MARKS):
        raise Unreadable(
            f"it is not {_UTF_8}, and {len(body)} bytes are too few to tell its encoding; {_HINT}"
        )
    return str(best).encode(errors="replace"), best.encoding
