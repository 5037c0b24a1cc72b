"""Aligns the words of a printed document with the words that were read.

Theory of operation. A word is what stands between white space, without the punctuation at its ends;
each ideograph and each kana is a word. Both texts are sequences of words, and a word of one is
equal to a word of the other if they have the same characters.

The alignment pairs equal words, each word at most once. A longest common subsequence would not do:
if two columns are read in the wrong order, it pairs the words of only one of them, and the others
seem lost. So the alignment covers the texts with tiles, which are runs of equal words, as greedy
string tiling does (Wise, String similarity via greedy string tiling, 1993). Long tiles come first,
because they are certain; then shorter ones. Of several places, a tile takes the one nearest to the
end of the tile before it. At the end single words are paired, so that a word is unpaired only if
the other text does not have it often enough.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

UNPAIRED = -1

# The least lengths of tiles, longest first.
_TILE_WORDS = (16, 8, 4, 2, 1)
# At most this many free places are compared, on either side of the expected place.
_LOOKED_AT = 8
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\s{_IDEOGRAPHS}]+")
_EDGE = re.compile(r"^[\W_]+|[\W_]+$")
_SAME = str.maketrans({"’": "'", "‘": "'", "‐": "-", "‑": "-", "\\": None, "\u00ad": None})


class Word(NamedTuple):
    """A word and the range of its characters in the text. `key` is what words are compared by."""

    key: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """Returns the words of a text. White space and runs of punctuation are no words."""
    words = []
    for match in _WORD.finditer(text):
        key = key_of(match[0])
        if key:
            words.append(Word(key, match.start(), match.end()))
    return words


def keys_of(text: str) -> list[str]:
    """Returns the keys of the words of a text."""
    return [word.key for word in words_of(text)]


def key_of(word: str) -> str:
    """Returns a word without the punctuation at its ends, in the form NFKC of Unicode."""
    return _EDGE.sub("", unicodedata.normalize("NFKC", word.translate(_SAME)))


def aligned(source: Sequence[str], text: Sequence[str]) -> list[int]:
    """Returns, for each word of `source`, the index of its word in `text`, or UNPAIRED."""
    alignment = _Alignment(source, text)
    for length in _TILE_WORDS:
        alignment.add_tiles(length)
    return alignment.pairs


class _Alignment:
    def __init__(self, source: Sequence[str], text: Sequence[str]) -> None:
        self._source = source
        self._text = text
        self.pairs = [UNPAIRED] * len(source)
        self._is_paired = [False] * len(text)

    def add_tiles(self, length: int) -> None:
        """Adds the tiles of at least `length` words, in the order of the source."""
        places = self._free_places(length)
        at, expected = 0, 0
        while at + length <= len(self._source):
            if self.pairs[at] != UNPAIRED:
                expected = self.pairs[at] + 1
                at += 1
                continue
            place = self._nearest(places.get(self._tile(at, length), ()), expected, length)
            if place is None or any(pair != UNPAIRED for pair in self.pairs[at : at + length]):
                at += 1
                continue
            at = self._pair(at, place)
            expected = self.pairs[at - 1] + 1

    def _tile(self, at: int, length: int) -> tuple[str, ...]:
        return tuple(self._source[at : at + length])

    def _free_places(self, length: int) -> dict[tuple[str, ...], list[int]]:
        """Returns where each run of `length` unpaired words begins in the text that was read."""
        places = defaultdict(list)
        free = 0
        for end, is_paired in enumerate(self._is_paired, start=1):
            free = 0 if is_paired else free + 1
            if free >= length:
                places[tuple(self._text[end - length : end])].append(end - length)
        return places

    def _nearest(self, places: Sequence[int], expected: int, length: int) -> int | None:
        """Returns the place nearest to `expected` whose words are unpaired, or None.

        Of two equally near places, the later one is returned.
        """
        after = bisect_left(places, expected)
        near = [*places[max(0, after - _LOOKED_AT) : after + _LOOKED_AT]]
        near += places if len(places) <= _LOOKED_AT else ()
        free = [place for place in near if not any(self._is_paired[place : place + length])]
        if not free and length == 1:
            free = [place for place in places if not self._is_paired[place]]
        return min(free, key=lambda place: (abs(place - expected), -place), default=None)

    def _pair(self, at: int, place: int) -> int:
        """Pairs the words of a tile as far as they are equal and unpaired; returns its end."""
        while (
            at < len(self._source)
            and place < len(self._text)
            and self._source[at] == self._text[place]
            and self.pairs[at] == UNPAIRED
            and not self._is_paired[place]
        ):
            self.pairs[at] = place
            self._is_paired[place] = True
            at += 1
            place += 1
        return at
