"""The syntax of queries: what must occur in every result, and what counts more.

A word or a quoted phrase after `+` must occur in every result, and so must the phrases of a query
that consists of nothing else. They are called the required parts of the query. A quoted phrase
inside a sentence is only a preference: its words have more weight, because people also quote what
the text says in other words.

Required parts are compared with the text of a result, not with its terms. So the comparison needs
no index, and it applies to the results of the lexical search and of the vector search alike.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from hrag.values.errors import InvalidArgument
from hrag_fast import Folding, fold, inside_word

MAX_REQUIRED = 16

# Typographic quotes do not mark phrases, because Chinese questions put terms into such quotes
# without requiring these terms. No alternative of the pattern scans past the next quote, so
# matching takes linear time. A straight quote directly after a Latin letter or digit does not open
# a phrase: it is a closing quote, or it means inches, as in `27" monitor`.
_REQUIRED = re.compile(
    r"(?P<plus>(?<!\S)\+)?"
    r'(?<![0-9A-Za-z])"(?P<phrase>[^"]*+)"'
    r"|(?<!\S)\+(?P<must>\S+)"
)
_PLUS = re.compile(r"(?<!\S)\++")
_WORD = re.compile(r"[^\W_]")
# Punctuation at the end of a required word is not part of the word: in
# `What does +E-4711 mean for +C++?`, the required words are `E-4711` and `C++`.
_PUNCTUATION = ".,;:!?。，、；：！？"


class ParsedQuery(NamedTuple):
    """A query's text without quotes and plus signs, its required parts and preferred phrases."""

    text: str
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()


def parse(text: str) -> ParsedQuery:
    """Splits a query into its text, for ranking and embedding, and its marked parts.

    Every result must contain the required parts, which are

    - words and phrases after a plus sign that is at the start of the query or after white space. A
      word ends at the next white space, and punctuation at its end is not part of it. A plus sign
      before a word without letters and digits is plain text,
    - phrases in straight double quotes, if the query has no other words.

    If the query has other words, its phrases in straight double quotes are preferred: their words
    have more weight. Empty quotes and a quote without a closing quote are plain text. If no part is
    marked, `text` is returned unchanged.

    Raises InvalidArgument for more than MAX_REQUIRED different marked parts.
    """
    if '"' not in text and "+" not in text:
        return ParsedQuery(text)
    required: dict[str, None] = {}
    quoted: dict[str, None] = {}

    def plain(match: re.Match[str]) -> str:
        part = _collapsed(match["phrase"] or match["must"] or "")
        if match["must"] and not _WORD.search(part):
            return match[0]
        if part and match["phrase"] and not match["plus"]:
            quoted[part] = None
        elif part:
            required[part.rstrip(_PUNCTUATION) if match["must"] else part] = None
        return f" {part} "

    plain_text = _REQUIRED.sub(plain, text)
    if len(required | quoted) > MAX_REQUIRED:
        raise InvalidArgument(
            f"text has {len(required | quoted)} quoted phrases and +words; at most {MAX_REQUIRED} "
            "are allowed",
            field="text",
        )
    if not required and not quoted:
        return ParsedQuery(text)
    plain_text = _collapsed(plain_text)
    if _WORD.search(_REQUIRED.sub(" ", text)):
        return ParsedQuery(plain_text, tuple(required), tuple(quoted))
    return ParsedQuery(plain_text, tuple(required | quoted))


def with_required(text: str, required: Iterable[str]) -> str:
    """Returns a query that requires exactly these parts, which are parts that `parse` has returned.

    Quotes and plus signs in `text` are replaced or removed, so that they mark nothing.
    """
    plain = _PLUS.sub("", text.replace('"', "'"))
    # A part with a quote in it was marked by a plus sign, so it contains no white space. Such a
    # part comes last, because its quote would be the start of a phrase if a phrase followed.
    phrases = [f'+"{part}"' for part in required if '"' not in part]
    return " ".join([plain, *phrases, *(f"+{part}" for part in required if '"' in part)])


class RequiredParts:
    """The required parts of a query (phrases and words after `+`), for comparison with texts.

    Parts and texts are folded before they are compared, by the folding of the collection's
    analyzer. So case does not matter, and each run of white space counts as one space. A part
    is not found where it would begin or end inside a word of the text: `cat` is not in
    `concatenate`. In scripts without spaces, a part may begin and end at every character: `数据` is
    in `大数据库`.
    """

    def __init__(self, required: Sequence[str], folding: Folding) -> None:
        self._folding = folding
        self._parts = [fold(part, folding, single_spaces=True) for part in required]

    def are_in(self, texts: Iterable[str]) -> bool:
        """Returns True if each part is in at least one of the texts.

        Takes time linear in the length of the texts and the parts.
        """
        folded = [fold(text, self._folding, single_spaces=True) for text in texts]
        return all(any(_has(text, part) for text in folded) for part in self._parts)


def _has(text: str, part: str) -> bool:
    return any(
        not inside_word(text, start) and not inside_word(text, start + len(part))
        for start in _occurrences(text, part)
    )


def _occurrences(text: str, part: str) -> Iterator[int]:
    """Yields the positions where a text contains a part, ascending.

    The period of the part is the smallest shift at which the part matches itself. Two occurrences
    are at least one period apart. If the text after an occurrence continues with the last `period`
    characters of the part, the next occurrence is exactly one period later, and no other characters
    are compared. Otherwise the search for the next occurrence starts one period later, and the two
    occurrences overlap by less than half of the part. So the time is linear in both lengths.
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
