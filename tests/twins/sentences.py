"""The twin of `_sentences.pyx`: it uses regular expressions, and returns the same ends."""

import re
from collections.abc import Iterator

from hrag_fast import MAX_SENTENCE_CHARS

_CLOSERS = "\"')\\]}”’」』）》】"
# Quantifiers are possessive, and no match starts inside a run, so matching takes linear time.
_ENDS = re.compile(
    rf"[。！？；…．｡]++[{_CLOSERS}]*+\s*+"  # Chinese and Japanese, where no space follows.
    rf"|(?<![.!?])[.!?]++[{_CLOSERS}]*+\s++"
    r"|\n[^\S\n]*+\n\s*+|\f\s*+"  # The end of a paragraph or page.
    r"|\n(?=[ \t]{0,8}(?:[-*+•] |\d{1,3}[.)] |#{1,6} |\|))"  # A line before a list item.
    r"|(?:\A|(?<=\n))#{1,6} [^\n]*+\n\s*+"  # The end of a heading.
)
# The characters with which a match of _ENDS can begin. Searching for them first takes a tenth of
# the time of searching for _ENDS: for a single character class, the regex engine skips all other
# characters, but it tries all alternatives of _ENDS at every character.
_CANDIDATES = re.compile(r"[。！？；…．｡.!?\n\f#]")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“‘])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Mt|No|Nos|Fig|Figs|Eq|Sec|Ch|Vol|pp?|"
    r"vs|cf|al|ca|approx|resp|e\.g|i\.e|a\.m|p\.m|U\.S|U\.K|[A-Z](?:\.[A-Z])+)\.$"
)
_LONGEST_ABBREVIATION = 16


def sentence_ends(text: str) -> list[int]:
    """The twin of `hrag_fast.sentence_ends`, which `_sentences.pyi` documents."""
    ends = [match.end() for match in _possible_ends(text) if _is_end(text, match)]
    if text and (not ends or ends[-1] != len(text)):
        ends.append(len(text))
    result: list[int] = []
    start = 0
    for end in ends:
        result += _cuts(text, start, end)
        start = end
    return _without_blank(text, result)


def _possible_ends(text: str) -> Iterator["re.Match[str]"]:
    """Yields the matches of `_ENDS`, in order. They do not overlap."""
    last_end = 0
    for candidate in _CANDIDATES.finditer(text):
        if candidate.start() >= last_end and (match := _ENDS.match(text, candidate.start())):
            last_end = match.end()
            yield match


def _is_end(text: str, match: "re.Match[str]") -> bool:
    """Returns True if a match of `_ENDS` ends a sentence.

    A full stop ends no sentence if a lower case letter follows, or if it ends an abbreviation and
    more text follows. But before a blank line, a full stop always ends a sentence.
    """
    if match[0][0] != ".":
        return True
    after = text[match.end() : match.end() + 1]
    if after.islower() and "\n\n" not in match[0]:
        return False
    return "\n\n" in match[0] or not (after and _ends_abbreviation(text, match.start()))


def _ends_abbreviation(text: str, stop: int) -> bool:
    """Returns True if the full stop at `stop` ends an abbreviation."""
    before = text[max(0, stop + 1 - _LONGEST_ABBREVIATION) : stop + 1]
    return _ABBREVIATION.search(before) is not None


def _cuts(text: str, start: int, end: int) -> list[int]:
    """Returns where the parts of a sentence end; the last part ends at `end`.

    There are several parts if the sentence is longer than MAX_SENTENCE_CHARS, and each part has at
    most this length.
    """
    cuts = []
    while end - start > MAX_SENTENCE_CHARS:
        window = text[start : start + MAX_SENTENCE_CHARS]
        half = MAX_SENTENCE_CHARS // 2
        at = window.rfind("\n", half) + 1 or window.rfind(" ", half) + 1
        start += at or MAX_SENTENCE_CHARS
        cuts.append(start)
    return [*cuts, end]


def _without_blank(text: str, ends: list[int]) -> list[int]:
    """Returns the ends without those of blank sentences, which become part of the one before."""
    merged: list[int] = []
    start = 0
    for end in ends:
        if merged and not text[start:end].strip():
            merged[-1] = end
        else:
            merged.append(end)
        start = end
    return merged
