"""The syntax of queries: quoted phrases and `+must` words are required parts.

Required parts are compared with the text of a result, not with its terms. So the comparison needs
no index, and a result may come from the lexical or the vector search.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from hrag.values.errors import InvalidArgument
from hrag_fast import fold, inside_word

MAX_REQUIRED = 16

# Typographic quotes do not mark phrases, because Chinese questions put terms into such quotes
# without requiring these terms. No alternative of the pattern scans past the next quote, so
# matching takes linear time. A straight quote directly after a Latin letter or digit does not open
# a phrase: it is a closing quote, or it means inches, as in `27" monitor`.
_REQUIRED = re.compile(
    r"(?:(?<!\S)\+)?"
    r'(?<![0-9A-Za-z])"(?P<phrase>[^"]*+)"'
    r"|(?<!\S)\+(?P<must>\S+)"
)
_WORD = re.compile(r"[^\W_]")
# Punctuation at the end of a required word is not part of the word: in
# `What does +E-4711 mean for +C++?`, the required words are `E-4711` and `C++`.
_PUNCTUATION = ".,;:!?。，、；：！？"


class ParsedQuery(NamedTuple):
    """A query's text without quotes and plus signs, and its required parts."""

    text: str
    required: tuple[str, ...]


def parse(text: str) -> ParsedQuery:
    """Splits a query into its text, for ranking and embedding, and its required parts.

    Required parts are phrases in straight double quotes and words after a plus sign. The plus sign
    must be at the start or after white space. The word ends at the next white space, and
    punctuation at its end is not part of it. A quote without a closing quote is plain text. Empty
    quotes are plain text, too, and so is a plus sign without a letter or digit after it. If there
    are no required parts, `text` is returned unchanged.

    Raises InvalidArgument for more than MAX_REQUIRED different required parts.
    """
    required: dict[str, None] = {}

    def plain(match: re.Match[str]) -> str:
        part = _collapsed(match["phrase"] or match["must"] or "")
        if match["must"] and not _WORD.search(part):
            return match[0]
        if part:
            required[part.rstrip(_PUNCTUATION) if match["must"] else part] = None
        return f" {part} "

    plain_text = _REQUIRED.sub(plain, text)
    if len(required) > MAX_REQUIRED:
        raise InvalidArgument(
            f"text has {len(required)} quoted phrases and +words; at most {MAX_REQUIRED} are "
            "allowed",
            field="text",
        )
    return ParsedQuery(_collapsed(plain_text) if required else text, tuple(required))


class RequiredParts:
    """The required parts of a query (quoted phrases, words after `+`), for comparison with texts.

    Parts and texts are folded before they are compared, so case does not matter, and each run of
    white space counts as one space. A part neither begins nor ends inside a word of the text:
    `cat` is not in `concatenate`, but `数据` is in `大数据库`.
    """

    def __init__(self, required: Sequence[str]) -> None:
        self._parts = [fold(part, single_spaces=True) for part in required]

    def are_in(self, texts: Iterable[str]) -> bool:
        """Returns True if each part is in at least one of the texts.

        Takes time linear in the length of the texts and the parts.
        """
        folded = [fold(text, single_spaces=True) for text in texts]
        return all(any(_has(text, part) for text in folded) for part in self._parts)


def _has(text: str, part: str) -> bool:
    return any(
        not inside_word(text, start) and not inside_word(text, start + len(part))
        for start in _occurrences(text, part)
    )


def _occurrences(text: str, part: str) -> Iterator[int]:
    """Yields the positions where a text contains a part, ascending.

    Takes time linear in both lengths. Two occurrences are at least as far apart as the smallest
    period of the part (the smallest shift at which it matches itself). If the next occurrence is
    exactly one period further, it overlaps the current one, and only the characters that it adds
    are compared. In other cases, occurrences overlap by less than half of the part.
    """
    start = text.find(part)
    while start >= 0:
        yield start
        period = _smallest_period(part)
        if text.startswith(part[-period:], start + len(part)):
            start += period
        else:
            start = text.find(part, start + period)


@lru_cache(maxsize=MAX_REQUIRED)
def _smallest_period(part: str) -> int:
    """Returns the smallest shift at which a string matches itself; for example 2 for `ababa`.

    The algorithm is the one of Knuth, Morris and Pratt (1977).
    """
    borders = [0] * len(part)
    border = 0
    for end in range(1, len(part)):
        while border and part[end] != part[border]:
            border = borders[border - 1]
        border += part[end] == part[border]
        borders[end] = border
    return len(part) - border


def _collapsed(text: str) -> str:
    """Returns a text with one space for each run of white space, and none at its ends."""
    return " ".join(text.split())
