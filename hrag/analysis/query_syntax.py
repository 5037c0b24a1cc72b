"""What a query says beyond its words: quoted phrases and `+must` words are required.

They are verified on the text itself, not on terms. An answer may come from any source, so the
check knows nothing of indexes.
"""

import re
from typing import NamedTuple

from hrag.errors import InvalidArgument
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


def contains(text: str, required: tuple[str, ...]) -> bool:
    """True if a text contains every required part, compared folded.

    All white space counts as one space. A part neither begins nor ends inside a word of the
    text: `cat` is not in `concatenate`, but `数据` is in `大数据库`.
    """
    if not required:
        return True
    folded = fold(text, single_spaces=True)
    return all(_has(folded, fold(part, single_spaces=True)) for part in required)


def _has(text: str, part: str) -> bool:
    start = text.find(part)
    while start >= 0:
        if not inside_word(text, start) and not inside_word(text, start + len(part)):
            return True
        start = text.find(part, start + 1)
    return False


def _collapsed(text: str) -> str:
    """Returns a text with one space for each run of white space, and none at its ends."""
    return " ".join(text.split())
