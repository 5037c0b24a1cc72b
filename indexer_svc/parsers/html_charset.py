"""Decodes the HTML pages inside other files, for example the chapters of an EPUB.

The encoding is UTF-8 if the bytes are valid UTF-8, or else the encoding that the page declares.
Nothing is guessed: a page that is not UTF-8 and declares no encoding is refused. A page that is a
document itself is decoded by `indexer_svc.text_encoding`, before a parser process gets it.
"""

import codecs
import re
from encodings import normalize_encoding
from encodings.aliases import aliases

from hrag.values.errors import UnreadableDocument

DECLARATION = re.compile(
    rb"<(?:meta|\?xml)[^>]{0,500}?(?:charset|encoding)\s*+=\s*+[\"']?\s*+([\w.:-]{1,40})",
    re.IGNORECASE,
)
_SEARCHED_BYTES = 4096
# If a page declares one of these encodings, it is decoded with a larger encoding that contains the
# declared encoding, as the HTML standard requires.
_SUPERSETS = {"latin_1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}
# Python's codecs are modules. A parser process loads this module before it gives up the right to
# open files, and cannot load any module afterwards. So all codecs are loaded here.
_CODECS = {
    name: codecs.lookup(name)
    for name in (
        *("utf_8", "utf_16_le", "utf_16_be"),
        *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255"),
        *("cp1256", "cp1257", "cp1258", "iso8859_2", "iso8859_3", "iso8859_4", "iso8859_5"),
        *("iso8859_6", "iso8859_7", "iso8859_8", "iso8859_9", "iso8859_10", "iso8859_13"),
        *("iso8859_14", "iso8859_15", "iso8859_16", "koi8_r", "koi8_u", "mac_roman", "gb18030"),
        *("big5", "euc_jp", "shift_jis", "euc_kr", "cp874", "tis_620"),
    )
}
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, _CODECS["utf_8"]),
    (codecs.BOM_UTF16_LE, _CODECS["utf_16_le"]),
    (codecs.BOM_UTF16_BE, _CODECS["utf_16_be"]),
)
_FIELD = "content"


def decoded(content: bytes) -> str:
    """Returns the text of a page. Bytes that are invalid in the declared encoding become U+FFFD.

    Raises UnreadableDocument if the page has NUL bytes. Also raises it if the page is not UTF-8 and
    declares no encoding, or an encoding that is not in `_CODECS`.
    """
    for mark, codec in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return codec.decode(content[len(mark) :], "replace")[0]
    if b"\0" in content:
        raise UnreadableDocument(
            f"content is not HTML: it has a NUL byte at offset {content.index(0)}", field=_FIELD
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return _declared_codec(content, error.start).decode(content, "replace")[0]


def _declared_codec(content: bytes, offset: int) -> codecs.CodecInfo:
    """Returns the codec of the encoding that a page declares.

    Raises UnreadableDocument if the page declares no encoding, or an encoding that is not in
    `_CODECS`. `offset` is the position of the first byte that is not UTF-8, for the error message.
    """
    declaration = DECLARATION.search(content[:_SEARCHED_BYTES])
    label = declaration[1].decode("ascii", "replace") if declaration else ""
    normal = normalize_encoding(label.lower())
    name = aliases.get(normal, normal)
    codec = _CODECS.get(_SUPERSETS.get(name, name))
    if codec is None:
        declares = f"declares the unknown encoding {label}" if label else "declares no encoding"
        raise UnreadableDocument(
            f"content is not UTF-8: byte 0x{content[offset]:02X} at offset {offset}, and the page "
            f"{declares}; send it as UTF-8",
            field=_FIELD,
        )
    return codec
