"""The variants of a word: other spellings under which it is indexed too, and searched.

* A word with accents has a variant without them: `café` is also `cafe`.
* A word of letters and digits has its parts: `24kV` is also `24` and `kv`, as `24 kV` is.
* A run of words joined by hyphens has a variant without them: `E-4711` is also `e4711`.

So a query finds a text in each of these spellings. The word itself remains a term, so a text with
the spelling of the query ranks higher.
"""

import re
import unicodedata

from hrag_fast import Variant

# A longer word is data, not language.
_MAX_CHARS = 64
# A word with more parts, such as a hash in hexadecimal digits, is not divided.
_MAX_PARTS = 4
_PARTS = re.compile("[0-9]+|[^0-9]+")
_IS_RUN = re.compile("[-._/@+#]")
# Up to five words with single joiners between them. A dot has a letter on both sides, so that
# `3.5` does not become `35`.
_JOINED_WORDS = re.compile(r"[^-._/@+#]+(?:(?:[-_]|(?<=[^0-9])\.(?=[^0-9]))[^-._/@+#]+){1,4}")
_JOINERS = re.compile("[-._]")
# Two numbers are more often a range than a code.
_RANGE = re.compile("[0-9]+[-_][0-9]+")
# The canonical combining classes (UAX #44) of points and accents: Hebrew points, Arabic vowel
# signs, then the marks above, below and around a letter. The vowel signs of other scripts and the
# dots that make another consonant have other classes.
_POINTS = range(10, 37)
_ACCENTS = range(200, 241)
# Letters with a stroke or of two letters, which Unicode does not decompose.
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "ı": "i"}
    | {"æ": "ae", "œ": "oe", "þ": "th"}
)


def variants(text: str) -> list[Variant]:
    """Returns the variants of a folded word or joined run, in the order in which they begin."""
    if len(text) > _MAX_CHARS:
        return []
    if _IS_RUN.search(text):
        joined = _without_joiners(text)
        return [Variant(joined, 0, len(text))] if joined else []
    plain = without_accents(text)
    return ([Variant(plain, 0, len(text))] if plain else []) + _parts(text)


def without_accents(word: str) -> str:
    """Returns a folded word without its accents, or "" if it has none."""
    if word.isascii():
        return ""
    letters = (c for c in unicodedata.normalize("NFD", word) if not _is_accent(c))
    plain = unicodedata.normalize("NFC", "".join(letters)).translate(_LETTERS)
    return "" if plain == word else plain


def _is_accent(character: str) -> bool:
    combining_class = unicodedata.combining(character)
    return combining_class in _POINTS or combining_class in _ACCENTS


def _parts(word: str) -> list[Variant]:
    """Returns the runs of digits and of other characters, if a word has two to _MAX_PARTS runs.

    Single letters are left out: they say nothing alone, and are in many words.
    """
    parts = [Variant(part[0], part.start(), part.end()) for part in _PARTS.finditer(word)]
    if not 1 < len(parts) <= _MAX_PARTS:
        return []
    return [part for part in parts if len(part.text) > 1 or "0" <= part.text <= "9"]


def _without_joiners(run: str) -> str:
    if not _JOINED_WORDS.fullmatch(run) or _RANGE.fullmatch(run):
        return ""
    return _JOINERS.sub("", run)
