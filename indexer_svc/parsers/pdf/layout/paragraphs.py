"""Joins lines into paragraphs, and the parts of a word that was broken at a line end.

A hyphen at the end of a line is either a break inside a word (`transporta-/tion`), which is taken
back, or belongs to the word (`E-/4711`, `well-/known`), and then stays. It stays if what follows is
no lower-case letter, if the part before it contains a digit, a capital letter inside, or another
hyphen, or if the part before it is a word that makes compounds in English. It also stays if the
document has the word with its hyphen elsewhere, and not without it.
"""

import re
from collections.abc import Callable, Sequence

from indexer_svc.parsers.pdf.layout.lines import Line

_LAST_WORD = re.compile(r"[^\W_](?:[\w'\u2019/]|-)*$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
# Words that often begin a compound with a hyphen, and seldom a longer word without one.
_COMPOUND_STARTS = (
    *("closed", "double", "eight", "first", "five", "fixed", "four", "full", "half", "high"),
    *("large", "left", "long", "low", "nine", "open", "real", "right", "role", "self", "seven"),
    *("short", "single", "six", "small", "state", "third", "three", "two", "user", "well"),
)
# Endings that follow some of these words without a hyphen.
_CLOSED_ENDINGS = (
    *("able", "age", "ages", "cut", "cuts", "ers", "est", "fall", "falls", "fold", "hand", "ing"),
    *("ings", "ish", "ism", "ist", "istic", "ity", "ize", "ized", "izes", "land", "lands"),
    *("light", "lights", "ment", "ments", "ness", "ship", "stop", "way", "ways", "some", "teen"),
)
_IS_COMPOUND_START = frozenset(_COMPOUND_STARTS)
_IS_CLOSED_ENDING = frozenset(_CLOSED_ENDINGS)
# Small words inside a compound with several hyphens, such as `end-to-end`.
_INNER_WORD = re.compile(r"(?:to|of|in|on|by|the|and|or|up|off|out|a|an|at|for|as|than)-\w")
_CJK = re.compile(
    "[\u2e80-\u303f\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef]"
)

KnowsWord = Callable[[str], bool]
"""Returns True if the document has a word, in lower case, inside a line."""


def _knows_nothing(_word: str) -> bool:
    return False


def joined_lines(lines: Sequence[Line], knows: KnowsWord = _knows_nothing) -> str:
    """Returns the text of the lines of one paragraph or cell, as one line."""
    if not lines:
        return ""
    text = lines[0].text
    for line in lines[1:]:
        text = joined(text, line.text, knows)
    return text


def joined(text: str, after: str, knows: KnowsWord = _knows_nothing) -> str:
    """Returns `text` followed by the next line of the same paragraph."""
    if not text or not after:
        return text or after
    if text[-1] == "-" and len(text) > 1 and text[-2].isalnum():
        return text + after if keeps_hyphen(text, after, knows) else text[:-1] + after
    if text[-1] in "-/" and len(text) > 1 and not text[-2].isspace():
        return text + after  # `2019-/2021)` or an address that is broken after a slash.
    if _CJK.match(text[-1]) and _CJK.match(after[0]):
        return text + after
    return f"{text} {after}"


def keeps_hyphen(text: str, after: str, knows: KnowsWord = _knows_nothing) -> bool:
    """Returns True if the hyphen at the end of `text` belongs to the word.

    `after` is the text of the next line.
    """
    next_word = _FIRST_WORD.match(after)
    if next_word is None or not after[0].islower():
        return True
    match = _LAST_WORD.search(text[:-1])
    if match is None:
        return True
    first, second = match.group(), next_word.group()
    if "-" in first or any(character.isdigit() for character in first) or _has_inner_capital(first):
        return True
    both, hyphened = (first + second).lower(), f"{first}-{second}".lower()
    if knows(both):
        return False
    if knows(hyphened):
        return True
    if _INNER_WORD.match(after):
        return True
    return (
        len(second) > 2
        and first.lower() in _IS_COMPOUND_START
        and second.lower() not in _IS_CLOSED_ENDING
    )


def _has_inner_capital(word: str) -> bool:
    return any(character.isupper() for character in word[1:])
