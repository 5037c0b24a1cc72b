"""Joins lines into paragraphs, and the parts of a word that was broken at a line end.

A hyphen at the end of a line is either a break inside a word (`transporta-/tion`), which is taken
back, or belongs to the word (`E-/4711`, `well-/known`), and then stays. It stays if what follows is
no lower-case letter, if the part before it contains a digit or a capital letter inside, or if it is
in an address (`https://a-/b.org`).
Otherwise the document decides: which of both words it has inside its lines, and whether its lines
are hyphenated at all. After another hyphen (`high-pres-/sure`, `state-of-the-/art`), the hyphen is
a break only if the document has the compound or its last word. At last, some words make compounds
in English.

An address that is broken at a line end gets no space if its next part can be told from a word: both
lines meet at a sign of addresses, or the address is not complete without the ending of its host.
"""

import re
from collections.abc import Iterable, Sequence

from indexer_svc.parsers.pdf.layout.lines import TextLine

# The search for the last word takes time in proportion to the square of the characters searched.
_MAX_WORD_CHARS = 200
_LAST_WORD = re.compile(r"[^\W_](?:[\w'\u2019/]|-)*$")
_ADDRESS = re.compile(r"(?://|www\.|@)\S*$")
_LAST_ADDRESS = re.compile(r"(?:(?:https?|ftp)://|www\.|(?<=\w)@)[^\s<>\"\u201d]*$")
# The host of an address, where no path begins.
_ONLY_HOST = re.compile(r"(?:\w+://|@)?[\w.-]*")
_ENDING = (
    r"(?:com|org|net|edu|gov|info|html?|pdf|php|txt|xml|json|zip|gz|aspx?|md|io|dev|de|fr|uk|eu|at"
    r"|ch|it|es|nl|jp|cn)"
)
_ENDS_HOST = re.compile(rf"\.{_ENDING}$")
# The next part of an address after a dot, and after a host that is broken anywhere.
_AFTER_DOT = re.compile(rf"{_ENDING}\b|[a-z0-9][\w.-]*(?:/|\.{_ENDING}\b)")
_REST_OF_HOST = re.compile(rf"[\w-]+(?:\.[\w-]+)*\.{_ENDING}\b")
_SIGN_OF_ADDRESS = re.compile(r"[/.?=&%_#~](?=\w)")
_PART_OF_QUERY = re.compile(r"[\w.-]*[&=%]\w")
# Words that follow an address with a slash at its end.
_WORD_AFTER_ADDRESS = re.compile(
    r"(?:and|or|for|to|in|is|on|at|the|with|which|see|where|are|has|und|oder|f\u00fcr|et|ou)\s"
)
# `and` and `or` are also the ends of words such as `operand`. They are conjunctions if the next
# word has a hyphen, too.
_CONJUNCTION = re.compile(r"(und|oder|bzw\.|sowie|(?:and|or)(?=\s\w+-\w))\s")
_BROKEN_WORD = re.compile(r"[^\W_][-/]$")
_WORDS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
# One in ten to twenty lines of a hyphenated text ends with a hyphen. In other texts, one in a
# hundred lines does. Lines that all end at the same x are nearly always hyphenated, others seldom.
# Only lines of at least _MIN_FULL_LINE characters count.
_MIN_FULL_LINE = 30
_MIN_LINES, _FEW_LINES = 60, 15
_MIN_BROKEN_LINES = 0.02
_MIN_JUSTIFIED = 0.4
_SAME_EDGE = 1.5
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


class Vocabulary:
    """The words inside the lines of a document, in lower case.

    `is_hyphenated` is True if the typesetter of the document broke words at line ends.
    """

    def __init__(self, lines: Iterable[TextLine] = ()) -> None:
        """Collects the words of lines. Too few lines are taken to be hyphenated."""
        self._words: set[str] = set()
        long_lines = broken = justified = 0
        right = 0.0
        for line in lines:
            text = line.text
            words = _WORDS.findall(text.lower())
            if text[-1] == "-":
                words = words[:-1]
            self._words.update(words)
            if len(text) >= _MIN_FULL_LINE:
                long_lines += 1
                broken += text[-1] == "-"
                justified += abs(line.right - right) < _SAME_EDGE
                right = line.right
        is_justified = justified > _MIN_JUSTIFIED * long_lines
        least = _MIN_BROKEN_LINES if is_justified else 2 * _MIN_BROKEN_LINES
        self.is_hyphenated = broken > least * long_lines
        if long_lines < _MIN_LINES:
            self.is_hyphenated = is_justified or long_lines < _FEW_LINES

    def __contains__(self, word: object) -> bool:
        """Returns True if the document has a word, in lower case, inside a line."""
        return word in self._words


NO_WORDS = Vocabulary()


def joined_lines(lines: Sequence[TextLine], words: Vocabulary = NO_WORDS) -> str:
    """Returns the text of the lines of one paragraph or cell, as one line."""
    if not lines:
        return ""
    text = lines[0].text
    for line in lines[1:]:
        text = joined(text, line.text, words)
    return text


def ends_inside_word(text: str) -> bool:
    """Returns True if a line ends with a hyphen or slash directly after a letter or digit."""
    return bool(_BROKEN_WORD.search(text))


def joined(text: str, after: str, words: Vocabulary = NO_WORDS) -> str:
    """Returns `text` followed by the next line of the same paragraph."""
    if not text or not after:
        return text or after
    if text[-1] == "-" and len(text) > 1 and text[-2].isalnum():
        if _is_suspended(text, after, words):
            return f"{text} {after}"
        return text + after if keeps_hyphen(text, after, words) else text[:-1] + after
    if text[-1] in "-/" and len(text) > 1 and not text[-2].isspace():
        # `2019-/2021)`, or an address that is broken after a slash or ends with it.
        is_end = text[-1] == "/" and _is_address(text) and _WORD_AFTER_ADDRESS.match(after)
        return f"{text} {after}" if is_end else text + after
    is_chinese = _CJK.match(text[-1]) and _CJK.match(after[0])
    return text + after if is_chinese or continues_address(text, after) else f"{text} {after}"


def _is_suspended(text: str, after: str, words: Vocabulary) -> bool:
    """Returns True if the hyphen stands for a word that follows, as in `Ein- und Ausgang`."""
    match = _CONJUNCTION.match(after)
    first = _LAST_WORD.search(text[-_MAX_WORD_CHARS:-1])
    return bool(match and first and first.group().lower() + match[1] not in words)


def _is_address(text: str) -> bool:
    return bool(_LAST_ADDRESS.search(text[-_MAX_WORD_CHARS:]))


def continues_address(text: str, after: str) -> bool:
    """Returns True if the next line goes on with the address at the end of `text`.

    A dot at the end of a line may also end the sentence. So the next part must look like one of an
    address, unless nothing can follow without it, as after `www.`.
    """
    match = _LAST_ADDRESS.search(text[-_MAX_WORD_CHARS:])
    if match is None:
        return False
    address = match.group()
    if address.endswith(("://", "www.")) or address[-1] in "=&%_#~":
        return after[0].isalnum() or after[0] in "/.?=&%_#~-"
    if _SIGN_OF_ADDRESS.match(after) or (address[-1] == "?" and _PART_OF_QUERY.match(after)):
        return True
    if address[-1] == ".":
        return bool(_AFTER_DOT.match(after))
    if "?" in address and _PART_OF_QUERY.match(after):
        return True
    is_cut = _ONLY_HOST.fullmatch(address) and not _ENDS_HOST.search(address)
    return bool(is_cut and _REST_OF_HOST.match(after))


def keeps_hyphen(text: str, after: str, words: Vocabulary = NO_WORDS) -> bool:
    """Returns True if the hyphen at the end of `text` belongs to the word.

    `after` is the text of the next line.
    """
    next_word = _FIRST_WORD.match(after)
    end = text[-_MAX_WORD_CHARS:]
    match = _LAST_WORD.search(end[:-1])
    if next_word is None or match is None or not after[0].islower() or _ADDRESS.search(end):
        return True
    compound, _, first = match.group().rpartition("-")
    if _is_code(first):
        return True
    whole, first, second = match.group().lower(), first.lower(), next_word.group().lower()
    if whole + second in words:
        return False
    is_letter = len(whole) == 1  # No word is broken after its first letter: `T-shirt`.
    if (
        is_letter
        or f"{whole}-{second}" in words
        or not words.is_hyphenated
        or _INNER_WORD.match(after)
    ):
        return True
    if compound:
        return first + second not in words
    are_words = len(first) > 3 and len(second) > 2 and first in words and second in words
    return are_words or (
        len(second) > 2 and first in _IS_COMPOUND_START and second not in _IS_CLOSED_ENDING
    )


def _is_code(word: str) -> bool:
    """Returns True if a word has a digit, or a capital letter inside."""
    return _has_inner_capital(word) or any(map(str.isdigit, word))


def _has_inner_capital(word: str) -> bool:
    return any(character.isupper() for character in word[1:])
