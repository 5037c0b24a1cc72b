"""What a query says beyond its words: quoted phrases and `+must` words are required.

They are verified on the text itself, not on terms. An answer may come from any source, so the
check knows nothing of indexes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from hrag.values.errors import InvalidArgument
from hrag_fast import fold, inside_word

MAX_REQUIRED = 16

# Typographic quotes are text: Chinese questions set terms in them, and do not require them.
# No alternative scans past the next quote, so matching takes linear time. A straight quote just
# after a Latin letter or digit opens nothing: it is a closing one, or the inches of `27" monitor`.
_REQUIRED = re.compile(
    r"(?:(?<!\S)\+)?"
    r'(?<![0-9A-Za-z])"(?P<phrase>[^"]*+)"'
    r"|(?<!\S)\+(?P<must>\S+)"
)
_WORD = re.compile(r"[^\W_]")
# What ends a sentence or clause is not part of a word: `What does +E-4711 mean for +C++?`
_PUNCTUATION = ".,;:!?。，、；：！？"


class ParsedQuery(NamedTuple):
    """A query's text without quotes and plus signs, and the parts of it that are required."""

    text: str
    required: tuple[str, ...]


def parse(text: str) -> ParsedQuery:
    """Splits a query into its text, for ranking and embedding, and what it requires.

    Required are phrases in straight double quotes, and words behind a plus sign, which
    stands at the start or after white space; such a word runs to the next white space, and
    punctuation that ends it is not required. Signs that have no partner, or nothing to require,
    are plain text. Without required parts, `text` is returned as it came.

    Raises InvalidArgument for more than MAX_REQUIRED different required parts.
    """
    required: dict[str, None] = {}

    def plain(found: re.Match[str]) -> str:
        part = _collapsed(found["phrase"] or found["must"] or "")
        if found["must"] and not _WORD.search(part):
            return found[0]
        if part:
            required[part.rstrip(_PUNCTUATION) if found["must"] else part] = None
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
    """The parts of a query that are required, to be compared with many texts.

    Compared folded; all white space counts as one space. A part neither begins nor ends inside a
    word of the text: `cat` is not in `concatenate`, but `数据` is in `大数据库`.
    """

    def __init__(self, required: Sequence[str]) -> None:
        self._parts = [fold(part, single_spaces=True) for part in required]

    def are_in(self, texts: Iterable[str]) -> bool:
        """True if every part is in one of the texts. Takes time linear in texts and parts."""
        folded = [fold(text, single_spaces=True) for text in texts]
        return all(any(_has(text, part) for text in folded) for part in self._parts)


def _has(text: str, part: str) -> bool:
    return any(
        not inside_word(text, start) and not inside_word(text, start + len(part))
        for start in _occurrences(text, part)
    )


def _occurrences(text: str, part: str) -> Iterator[int]:
    """Yields where a text has a part, ascending, in time linear in both.

    Two occurrences are at least the part's smallest period apart. In a run of them, only what
    the next one adds is compared; others overlap by less than half.
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
    """By how much a part must be moved to lie on itself (Knuth, Morris and Pratt, 1977)."""
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
