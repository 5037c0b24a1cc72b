"""Decodes the bytes of texts, and detects their encoding.

The first of these rules that applies decides:

1. The encoding that the client names. It is never doubted: bytes that it does not allow are an
   error.
2. A byte order mark.
3. UTF-16 or UTF-32 without a mark, if there are NUL bytes at the right positions and the result
   reads like text. A text in any other encoding has no NUL bytes. ISO-2022-JP, if the bytes have
   its escape sequences.
4. UTF-8, if all bytes are valid. Texts in other encodings are almost never valid UTF-8 by chance.
5. The encoding that the file declares, for example an HTML page.
6. A guess by chardetng, the detector of Firefox. It compares the frequencies of pairs of letters
   with those of the languages that each encoding was made for. It knows the encodings that the
   WHATWG standard lists, so it never guesses a code page that nobody uses. A guess from few bytes
   gives way to windows-1252 if this encoding gives signs where they belong, for example `±` before
   a number, or if the guess is an encoding that is rarely used.

A guess may be wrong, so it is reported as one. Some guesses would certainly be wrong, and raise
an error instead: text that is mostly valid UTF-8 with a few wrong bytes, and bytes with control
characters, which are no text at all. All functions are pure.
"""

import codecs
import encodings
import re
from collections.abc import Mapping
from dataclasses import dataclass
from encodings import normalize_encoding
from encodings.aliases import aliases
from itertools import pairwise
from pkgutil import iter_modules
from unicodedata import category

from chardetng_py.detector import EncodingDetector

from hrag.values.errors import InvalidArgument, UnreadableDocument
from hrag.values.formats import HTML, LATEX, PYTHON, XML
from hrag.values.ids import quoted
from indexer_svc.parsers import html_charset

_ENCODING_FIELD = "encoding"
UTF_8 = "utf-8"
_MARKS = (
    (codecs.BOM_UTF8, UTF_8),
    # The mark of UTF-32 begins with the mark of UTF-16, so it is tried first.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NOT_TEXT_CODECS = frozenset((
    "aliases", "base64_codec", "bz2_codec", "hex_codec", "idna", "mbcs", "oem", "palmos",
    "punycode", "quopri_codec", "raw_unicode_escape", "rot_13", "undefined", "unicode_escape",
    "uu_codec", "zlib_codec",
))  # fmt: skip
_ALL_CODEC_NAMES = {
    **{module.name: module.name for module in iter_modules(encodings.__path__)},
    **aliases,
    "utf_8_sig": "utf_8",
    "windows_874": "cp874",
    "x_sjis": "shift_jis",
    "x_mac_cyrillic": "mac_cyrillic",
    "iso_8859_8_i": "iso8859_8",
    "ansinew": "cp1252",  # LaTeX's name.
}
# The names of all encodings that a client may name. Names that are not in this table are never
# given to `codecs.lookup`, which keeps every unknown name in memory.
_CODEC_NAMES = {
    name: codec for name, codec in _ALL_CODEC_NAMES.items() if codec not in _NOT_TEXT_CODECS
}
# The WHATWG standard decodes these encodings by larger ones that contain them. They are replaced
# where a file declares them or a guess names them, because many files with these labels use
# characters of the larger encoding.
_SUPERSETS = {
    "ascii": "cp1252",
    "latin_1": "cp1252",
    "iso8859_9": "cp1254",
    "tis_620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
# The names of the codecs with one byte for each character begin like this.
_BYTE_CODECS = ("latin_1", "iso8859", "cp125", "koi8", "mac_")
_WHATWG_NAMES = {"cp932": "shift_jis", "cp949": "euc-kr", "big5hkscs": "big5", "utf_8": UTF_8}
# ISO-2022-JP changes to Japanese characters by these sequences, which no other text has.
_JAPANESE_ESCAPE, _ISO_2022_JP = re.compile(rb"\x1b\$[@B]"), "iso2022-jp"
# For each MIME type, a pattern of the place where a file names its encoding: an HTML page, XML,
# Python (PEP 263), LaTeX.
DECLARATIONS: Mapping[str, re.Pattern[bytes]] = {
    HTML: html_charset.DECLARATION,
    XML: re.compile(rb"<\?xml[^>]{0,500}?encoding\s*+=\s*+[\"']([\w.:-]{1,40})"),
    PYTHON: re.compile(rb"^[ \t\f]*#[^\n]{0,200}?coding[:=][ \t]*([\w.-]{1,40})", re.MULTILINE),
    LATEX: re.compile(rb"\\usepackage\s*\[([\w-]{1,40})\]\s*\{inputenc\}"),
}
_MAX_NAME_CHARS = 40
_DECLARATION_BYTES = 4096

# The detector reads lines with bytes beyond ASCII, at most this many bytes of them. It reads 2 to
# 4 MB per second. With 1,500 bytes of such lines, 98 % of the guesses were right.
_SAMPLE_BYTES = 1 << 16
_FED_BYTES = 1 << 13
PART_BYTES = 1 << 20  # A text is decoded in parts of this size.
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
# No text contains these control characters. Some texts contain others: escape, shifts, and the mark
# of the end of a file in old systems.
_CONTROLS = re.compile(rb"[\x00-\x06\x10-\x19\x1c-\x1f\x7f]")
_MAX_CONTROL_SHARE = 0.005
# In windows-1252, the bytes of these signs are signs, and in other encodings many of them are
# letters. Each alternative matches signs beside what stands beside them in a text.
_LETTER = "[A-Za-z\\xaa\\xba\\xc0-\\xd6\\xd8-\\xf6\\xf8-\\xffŒœŠšŽžŸƒ]"
_SIGNS = re.compile(
    rf"(?<!{_LETTER})[±×÷¼½¾¢¶§](?!{_LETTER})"
    r"|[£¥](?=[ \xa0]?\d)|(?<=\d)[£¥]|(?<=\d[ \xa0])[£¥]"
    rf"|(?<=[\d)])[²³¹ªº](?!{_LETTER})|(?<!{_LETTER})(?:[A-Za-z]|[cdkm]m|ft|in)[²³](?!{_LETTER})"
    rf"|(?<!{_LETTER})[Nn][ªº]"
    rf"|(?<!{_LETTER})µ(?=(?:[AFgHJlLmMsVW]|mol|Pa)?(?!{_LETTER}))"
    rf"|(?<!{_LETTER})[¡¿](?=[A-ZÀ-ÖØ-Þ])"
    rf"|(?<!{_LETTER})«|»(?!{_LETTER})"
    rf"|[©®](?!{_LETTER})"
    r"|[\xa0\xad°·€„…†‡‰‹›‘’“”•–—™]"
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_RARELY_USED = ("iso8859_4", "iso8859_13")
_MAX_FEW_BYTES = 3
# Python's codecs refuse a few bytes that browsers read as control characters. A guess is kept if
# at most this share of the characters is wrong.
_MAX_WRONG_SHARE = 0.001
# Texts in UTF-16 without a mark are recognised by this many of their first characters.
_JUDGED_CHARS = 1 << 13
_MAX_STRANGE_SHARE = 0.02
_MAX_SCRIPT_CHANGES = 0.2


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A text, and the encoding that it had, by its name in the WHATWG standard in lower case.

    `is_guessed` is True if neither the client nor the bytes themselves prove the encoding.
    """

    text: str
    encoding: str
    is_guessed: bool = False


def load_codecs() -> None:
    """Loads the codecs of all encodings that `decode` may use.

    Codecs are modules, and a confined parser process cannot load modules later.
    """
    for codec in set(_CODEC_NAMES.values()):
        codecs.lookup(codec)


def check_encoding(name: str) -> None:
    """Raises InvalidArgument if a client may not name this encoding."""
    if name:
        _codec_of(name)


def decode(
    content: bytes, encoding: str = "", declaration: re.Pattern[bytes] | None = None
) -> DecodedText:
    """Returns the text of `content`, without a byte order mark.

    `encoding` is the encoding that the client names, or empty. The first group of `declaration`
    matches the name of the encoding that a file declares in its first 4 KB. Declared encodings
    that are unknown are ignored.

    Raises UnreadableDocument if `content` is not text or not in the given encoding, or
    InvalidArgument if the given encoding is unknown.
    """
    if encoding:
        return _decode_as(content, encoding)
    for mark, name in _MARKS:
        if content.startswith(mark) and (decoded := _decoded_strictly(content[len(mark) :], name)):
            return decoded
    if b"\0" in content:
        return _decode_wide(content)
    if _JAPANESE_ESCAPE.search(content) and (decoded := _decoded_strictly(content, _ISO_2022_JP)):
        return decoded
    try:
        return DecodedText(content.decode(), UTF_8)
    except UnicodeDecodeError as error:
        return _decode_legacy(content, error, declaration)


def _decode_legacy(
    content: bytes, error: UnicodeDecodeError, declaration: re.Pattern[bytes] | None
) -> DecodedText:
    """Returns the text of bytes that are not UTF-8, as `error` says. Raises UnreadableDocument."""
    if declared := _declared_codec(content, declaration):
        return DecodedText(_decoded(content, declared, "replace"), _reported_name(declared))
    _refuse_damaged_utf8(content, error)
    return _decode_guessed(content)


def decode_named(content: bytes, encoding: str) -> DecodedText:
    """Returns the text of bytes in the encoding that a message names, which may be a wrong one.

    Bytes beyond ASCII that are valid UTF-8 are UTF-8, if the message names an encoding with one
    byte for each character. `iso-8859-1` means windows-1252, as in browsers. Raises
    UnreadableDocument if `content` is not in the encoding, or InvalidArgument if it is unknown.
    """
    codec = _codec_of(encoding)
    if codec != "ascii":
        is_of_bytes = codec.startswith(_BYTE_CODECS)
        if is_of_bytes and not content.isascii() and (decoded := _decoded_strictly(content, UTF_8)):
            return decoded
        superset = _SUPERSETS.get(codec, codec)
        if decoded := _decoded_strictly(content, superset):
            text = decoded.text.removeprefix("\ufeff")
            return DecodedText(text, _reported_name(superset))
    return _decode_as(content, encoding)


def is_text(content: bytes) -> bool:
    """Returns True if `decode` can decode `content` without further knowledge.

    It costs little for UTF-8 and for files that are clearly binary.
    """
    try:
        decode(content)
    except UnreadableDocument as error:
        # Text with wrong bytes is text too.
        return error.field == _ENCODING_FIELD
    return True


def _codec_of(name: str) -> str:
    """Returns Python's name of the encoding that a client names. Raises InvalidArgument."""
    normal = normalize_encoding(name.strip().lower()) if name.isascii() else ""
    codec = _CODEC_NAMES.get(normal) if len(name) <= _MAX_NAME_CHARS else None
    if codec is None:
        raise InvalidArgument(
            f"encoding is {quoted(name)}; it must be the name of a text encoding, for example "
            "utf-8, windows-1252 or gb18030",
            field=_ENCODING_FIELD,
        )
    return codec


def _reported_name(codec: str) -> str:
    """Returns the name under which an encoding is reported."""
    if codec in _WHATWG_NAMES:
        return _WHATWG_NAMES[codec]
    windows = re.fullmatch(r"cp(125\d|874)", codec)
    if windows:
        return f"windows-{windows[1]}"
    return codecs.lookup(codec).name.replace("_", "-").replace("iso8859", "iso-8859")


def _decode_as(content: bytes, encoding: str) -> DecodedText:
    codec = _codec_of(encoding)
    try:
        text = _decoded(content, codec, "strict")
    except UnicodeDecodeError as error:
        raise _wrong_byte_error(_reported_name(codec), error) from None
    return DecodedText(text.removeprefix("\ufeff"), _reported_name(codec))


def _decoded_strictly(content: bytes, codec: str) -> DecodedText | None:
    try:
        return DecodedText(_decoded(content, codec, "strict"), codec)
    except UnicodeDecodeError:
        return None


def _decoded(content: bytes, codec: str, errors: str) -> str:
    """Returns the text of bytes. Raises UnicodeDecodeError, with the offset in `content`.

    Other threads can run between two parts, because a codec does not release the interpreter's
    lock: gb18030 decodes about 50 MB per second.
    """
    decoder = codecs.getincrementaldecoder(codec)(errors)
    texts = []
    for start in range(0, max(len(content), 1), PART_BYTES):
        end = start + PART_BYTES
        try:
            texts.append(decoder.decode(content[start:end], end >= len(content)))
        except UnicodeDecodeError as error:
            # The error is about the part, and the bytes before it that the decoder had kept.
            before = min(end, len(content)) - len(error.object)
            raise UnicodeDecodeError(
                codec, content, before + error.start, before + error.end, error.reason
            ) from None
    return "".join(texts)


def _wrong_byte_error(encoding: str, error: UnicodeDecodeError) -> UnreadableDocument:
    return UnreadableDocument(
        f"content is not {encoding}: byte 0x{error.object[error.start]:02X} at offset "
        f"{error.start:,}; encoding must name the encoding that the text has",
        field=_ENCODING_FIELD,
    )


def _not_text_error(content: bytes, problem: str) -> UnreadableDocument:
    start = " ".join(f"{byte:02X}" for byte in content[:8])
    return UnreadableDocument(
        f"content is neither text nor a file of a known format: {problem}, and it begins with the "
        f"bytes {start}; mime_type may name its format if it is not text",
        field="mime_type",
    )


def _declared_codec(content: bytes, declaration: re.Pattern[bytes] | None) -> str:
    """Returns Python's name of the encoding that a file declares; empty if it declares none.

    A declared UTF-8 counts as none, because this is called for bytes that are not UTF-8.
    """
    match = declaration.search(content[:_DECLARATION_BYTES]) if declaration else None
    if match is None:
        return ""
    normal = normalize_encoding(match[1].decode("ascii", "replace").lower())
    codec = _CODEC_NAMES.get(normal, "")
    codec = _SUPERSETS.get(codec, codec)
    return "" if codec.startswith("utf") else codec


def _refuse_damaged_utf8(content: bytes, error: UnicodeDecodeError) -> None:
    """Raises UnreadableDocument if a text is UTF-8 that is damaged or cut off.

    A text is damaged UTF-8 if at least half of the characters beyond ASCII in its sample are valid
    UTF-8. In sentences in 21 other encodings, at most 28 % of these characters happen to be valid
    (in EUC-JP).
    """
    # Only the last character of a text that was cut off is wrong. If the rest is ASCII and one byte
    # is left, it may as well be a letter of another encoding, as in "caf\xe9".
    is_cut_off = error.end == len(content) and error.reason == "unexpected end of data"
    if is_cut_off and (error.end - error.start > 1 or not content[: error.start].isascii()):
        raise _wrong_byte_error(UTF_8, error)
    sample = _sample(content)
    text = sample.decode(errors="replace")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    in_text = sample.count("\N{REPLACEMENT CHARACTER}".encode())
    wrong = text.count("\N{REPLACEMENT CHARACTER}") - in_text
    if beyond_ascii - wrong >= wrong:
        raise _wrong_byte_error(UTF_8, error)


def _decode_guessed(content: bytes) -> DecodedText:
    controls = sum(1 for _ in _CONTROLS.finditer(content[:_SAMPLE_BYTES]))
    if controls > _MAX_CONTROL_SHARE * min(len(content), _SAMPLE_BYTES):
        raise _not_text_error(content, "it has control characters")
    detector = EncodingDetector()
    sample = _sample(content)
    for start in range(0, len(sample), _FED_BYTES):
        detector.feed(sample[start : start + _FED_BYTES], last=False)
    name = normalize_encoding(detector.guess(tld=None, allow_utf8=False).lower())
    codec = _CODEC_NAMES[name]
    codec = "cp1252" if _is_western(sample, codec) else _SUPERSETS.get(codec, codec)
    text = _decoded(content, codec, "replace")
    if text.count("\N{REPLACEMENT CHARACTER}") > _MAX_WRONG_SHARE * len(text):
        raise _not_text_error(content, f"in {_reported_name(codec)} it has invalid bytes")
    return DecodedText(text, _reported_name(codec), is_guessed=True)


def _is_western(sample: bytes, guess: str) -> bool:
    """Returns True if a text is in windows-1252 although the detector guesses another encoding.

    The detector knows pairs of letters. A text that has few letters beyond ASCII but signs, like
    `20 °C ± 1`, gives it little to compare.
    """
    western = _decoded_strictly(sample, "cp1252")
    if western is None:
        return False
    beyond_ascii = len(_NOT_ASCII.findall(western.text))
    if guess in _RARELY_USED and beyond_ascii <= _MAX_FEW_BYTES:
        return True
    signs = {at for match in _SIGNS.finditer(western.text) for at in range(*match.span())}
    guessed = _decoded(sample, guess, "replace")
    if len(guessed) == len(western.text):
        in_doubt = [at for at, char in enumerate(western.text) if char != guessed[at]]
        unlikely = [at for at in in_doubt if at not in signs and not western.text[at].isalpha()]
    else:
        # The guess has characters of several bytes. Signs in a row are probably such a character,
        # and so is one with a byte below 0xA0, which is a lead byte in Shift_JIS and GB 18030.
        in_doubt = [match.start() for match in _NOT_ASCII.finditer(western.text)]
        signs = {at for at in signs if western.text[at] <= "\xff"}
        unlikely = [at for at in in_doubt if at not in signs or at + 1 in in_doubt]
    has_pairs = western.text.count("«") == western.text.count("»")
    return has_pairs and not unlikely and not signs.isdisjoint(in_doubt)


def _sample(content: bytes) -> bytes:
    """Returns whole lines that have bytes beyond ASCII, at most _SAMPLE_BYTES bytes of them.

    In every encoding that is guessed, the byte of a line feed is a line feed, so no character is
    cut.
    """
    sample = bytearray()
    match = _BEYOND_ASCII.search(content)
    while match and len(sample) < _SAMPLE_BYTES:
        start = content.rfind(b"\n", max(0, match.start() - _SAMPLE_BYTES), match.start()) + 1
        end = content.find(b"\n", match.start(), match.start() + _SAMPLE_BYTES)
        end = match.start() + _SAMPLE_BYTES if end < 0 else end + 1
        sample += content[max(start, match.start() - _FED_BYTES) : end]
        match = _BEYOND_ASCII.search(content, end)
    return bytes(sample[:_SAMPLE_BYTES])


def _decode_wide(content: bytes) -> DecodedText:
    """Returns the text of bytes in UTF-16 or UTF-32 without a mark. Raises UnreadableDocument."""
    even, odd = (
        content[: 2 * _JUDGED_CHARS : 2].count(0),
        content[1 : 2 * _JUDGED_CHARS : 2].count(0),
    )
    # A character of Latin has its NUL byte at an odd offset in little-endian order.
    order = "le" if odd > even else "be"
    widths = ("32", "16") if min(even, odd) * 4 > max(even, odd) else ("16", "32")
    for width in widths:
        decoded = _decoded_strictly(content, f"utf-{width}-{order}")
        if decoded is not None and _reads_like_text(decoded.text[:_JUDGED_CHARS]):
            return decoded
    raise _not_text_error(content, f"it has a NUL byte at offset {content.index(0):,}")


def _reads_like_text(text: str) -> bool:
    """Returns True if a text has few characters that no text has, and few changes of script.

    Two ASCII letters that are decoded as one character of two bytes give a Chinese character next
    to other letters without a space.
    """
    strange = sum(
        category(char) in ("Cc", "Cn", "Co", "Cs") and char not in "\t\n\r\f" for char in text
    )
    changes = sum(
        before.isalpha() and after.isalpha() and before.isascii() != after.isascii()
        for before, after in pairwise(text)
    )
    return strange <= _MAX_STRANGE_SHARE * len(text) and changes <= _MAX_SCRIPT_CHANGES * len(text)
