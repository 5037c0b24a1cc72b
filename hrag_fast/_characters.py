"""Folds clusters of characters and classifies characters, by Unicode's rules.

Folding makes different spellings of the same word equal. It drops invisible characters, then
applies NFKC, then case folding, then NFKC again; a `Folding` may make more spellings equal. It
works cluster by cluster. A cluster is a
character and the following characters that are invisible or may combine with it: marks, and the
vowels and final consonants of Hangul syllables. NFKC never composes or reorders characters across
the border of two clusters. So a folded text consists of its folded clusters in order, and each
folded character comes from a known span of the original text.

The compiled term extractor reads the tables that `character_page` returns, and calls `folded_bytes`
for a cluster of several characters. So it follows the Unicode version of the running Python.
"""

import re
import struct
import sys
import unicodedata
from bisect import bisect_right
from enum import IntEnum

# A cluster, a character with the marks that follow it, has at most this many characters. Further
# marks begin a new cluster. The limit is needed because Python's normalization sorts the marks of a
# character in quadratic time. For streams, Unicode limits sequences of marks to 30 (UAX #15,
# Stream-Safe Text Format).
MAX_CLUSTER = 32


class Folding(IntEnum):
    """Which spellings of a word are equal."""

    UNICODE = 0
    """Spellings are equal if NFKC and case folding make them equal."""
    UNIFIED = 1
    """Also decimal digits of all scripts, and the hyphens U+2010 and U+002D."""
    TURKISH = 2
    """Like UNIFIED, but ``I`` is the capital letter of ``ı``, and ``İ`` that of ``i``."""


OTHER, WORD, CJK, MARK, SPACE, JOINER, SUFFIX = range(7)
"""The classes of folded characters.

* WORD: letters, digits and numerals, except those of class CJK.
* CJK: letters and marks of scripts that are written without spaces, and Hangul syllables.
* MARK: combining marks. After a WORD character they belong to the word; otherwise they separate
  words.
* SPACE: white space.
* JOINER: ``. - _ / @``, which join words.
* SUFFIX: ``+ #``, which join words too, and may also end a joined run.
* OTHER: everything else; it separates words.
"""

JOINERS = frozenset(".-_/@")
SUFFIXES = frozenset("+#")
CJK_RANGES = (
    (0x0E00, 0x0EFF),  # Thai and Lao.
    (0x1000, 0x109F),  # Myanmar.
    (0x1780, 0x17FF),  # Khmer.
    (0x3000, 0x303F),  # Han iteration marks and numerals among the CJK punctuation.
    (0x3040, 0x30FF),  # Hiragana and Katakana, with the prolonged sound mark.
    (0x31F0, 0x31FF),  # Small Katakana.
    (0x3400, 0x4DBF),  # Han, extension A.
    (0x4E00, 0x9FFF),  # Han.
    (0xA9E0, 0xA9FF),  # Myanmar, extension B.
    (0xAA60, 0xAA7F),  # Myanmar, extension A.
    (0xAC00, 0xD7A3),  # Hangul syllables.
    (0xF900, 0xFAFF),  # Han compatibility ideographs.
    (0x1AFF0, 0x1B16F),  # Kana extensions.
    (0x20000, 0x3FFFF),  # Han beyond the basic plane.
)
HANGUL_VOWELS_AND_FINALS = ((0x1160, 0x11FF), (0xD7B0, 0xD7FF))
_SURROGATE = re.compile("[\ud800-\udfff]")
# Default ignorable code points (UAX #44) that occur inside words and only control how words look
# or break: soft hyphen, combining grapheme joiner, zero width non-joiner and joiner, word joiner,
# byte order mark, variation selectors. NFKC_Casefold drops them, too. The zero width space U+200B
# is not among them: it is invisible too, but it separates words.
_INVISIBLE = re.compile("[\u00ad\u034f\u200c\u200d\u2060\ufeff\ufe00-\ufe0f\U000e0100-\U000e01ef]+")

# The table of characters is divided into pages. A page has one entry for each of 256 consecutive
# code points.
PAGE_SIZE = 256
# The bytes of an entry are: the character's class; 1 if `may_combine` returns True, otherwise 0;
# the length of the folded form in UTF-8; a padding byte; and the folded form in four bytes. If the
# folded form is not exactly one character, the length is 0.
ENTRY = struct.Struct("<BBBx4s")


def may_combine(character: str) -> bool:
    """Returns True if a character is invisible or may combine with the character before it."""
    if _INVISIBLE.match(character):
        return True
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.category(first)[0] == "M" or _is_in(first, HANGUL_VOWELS_AND_FINALS)


def fold_cluster(cluster: str, folding: Folding) -> str:
    """Returns the folded form of a cluster, which is a character with the marks that follow it."""
    visible = unicodedata.normalize("NFKC", _INVISIBLE.sub("", cluster))
    if folding is Folding.TURKISH:
        visible = visible.replace("İ", "i").replace("I", "ı")
    folded = unicodedata.normalize("NFKC", visible.casefold())
    if folding is Folding.TURKISH:
        folded = folded.replace("i\N{COMBINING DOT ABOVE}", "i")
    if folding is not Folding.UNICODE:
        folded = "".join(map(_unified, folded))
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", folded)


def _unified(character: str) -> str:
    """Returns the ASCII form of a decimal digit or a hyphen; other characters do not change.

    NFKC turns the non-breaking hyphen U+2011 into U+2010.
    """
    if character == "\N{HYPHEN}":
        return "-"
    digit = unicodedata.decimal(character, None)
    return character if digit is None else str(digit)


def character_class(character: str) -> int:
    """Returns the class of a folded character: OTHER, WORD, CJK, MARK, SPACE, JOINER or SUFFIX."""
    if character in JOINERS:
        return JOINER
    if character in SUFFIXES:
        return SUFFIX
    category = unicodedata.category(character)
    if (category[0] in "LM" or category == "Nl") and _is_in(character, CJK_RANGES):
        return CJK
    if category[0] == "M":
        return MARK
    if character.isspace():
        return SPACE
    return WORD if character.isalnum() else OTHER


def inside_word(folded: str, offset: int) -> bool:
    """Returns True if the characters before and after an offset of a folded text are in one word.

    `offset` is in characters, from 0 to the length of the text.
    """
    return _is_word(folded, offset) and _is_word(folded, offset - 1)


def _is_word(folded: str, index: int) -> bool:
    """Returns True if a character is part of a word.

    A mark is part of a word if the character to which it is attached is part of a word. Returns
    False if `index` is the length of the text.
    """
    if index == len(folded):
        return False
    for before in range(index, max(index - MAX_CLUSTER, -1), -1):
        kind = character_class(folded[before])
        if kind != MARK:
            return kind == WORD
    # All characters that were examined are marks. If `index` is less than MAX_CLUSTER, the text
    # begins with these marks, so they are in no word. Otherwise the loop has stopped after
    # MAX_CLUSTER marks without finding the character to which they are attached. Then they count as
    # part of a word.
    return index >= MAX_CLUSTER


def _is_in(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    """Returns True if a character lies in one of the `ranges` of code points, which must ascend."""
    before = bisect_right(ranges, (ord(character), sys.maxunicode)) - 1
    return before >= 0 and ord(character) <= ranges[before][1]


def character_page(number: int, folding: Folding) -> bytes:
    """Returns one page of the table of characters of a folding, with 8 bytes for each character.

    The page has the entries of the code points `number * 256` to `number * 256 + 255`.
    """
    first = number * PAGE_SIZE
    return b"".join(_entry(chr(first + i), folding) for i in range(PAGE_SIZE))


def _entry(character: str, folding: Folding) -> bytes:
    folded = fold_cluster(character, folding)
    if len(folded) != 1:
        return ENTRY.pack(OTHER, may_combine(character), 0, b"")
    encoded = folded.encode()
    return ENTRY.pack(
        character_class(folded), may_combine(character), len(encoded), encoded.ljust(4, b"\0")
    )


def folded_bytes(cluster: str, folding: Folding) -> tuple[bytes, bytes]:
    """Returns the folded cluster in UTF-8, and for each byte the class of the byte's character."""
    folded = fold_cluster(cluster, folding)
    classes = b"".join(bytes([character_class(c)]) * len(c.encode()) for c in folded)
    return folded.encode(), classes
