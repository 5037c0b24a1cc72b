"""The plain twin of `sentence_ends`, by regular expressions. It defines the right answer.

What is rare the kernel takes from here.
"""

import re
from collections.abc import Iterator

MAX_SENTENCE_CHARS = 1000

_CLOSERS = "\"')\\]}”’」』）》】"
# Possessive quantifiers, and no match starts inside a run, so matching takes linear time.
_ENDS = re.compile(
    rf"[。！？；…．｡]++[{_CLOSERS}]*+\s*+"  # Chinese and Japanese, where no space follows;
    rf"|(?<![.!?])[.!?]++[{_CLOSERS}]*+\s++"
    r"|\n[^\S\n]*+\n\s*+|\f\s*+"  # end of a paragraph or page;
    r"|\n(?=[ \t]{0,8}(?:[-*+•] |\d{1,3}[.)] |#{1,6} |\|))"  # end of a line before a list item;
    r"|(?:\A|(?<=\n))#{1,6} [^\n]*+\n\s*+"  # end of a heading.
)
# What an end begins with. Looking for these characters first takes a tenth of the time: with a
# class alone the regex engine skips everything else, with alternatives it tries each of them.
_CANDIDATES = re.compile(r"[。！？；…．｡.!?\n\f#]")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“‘])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Mt|No|Nos|Fig|Figs|Eq|Sec|Ch|Vol|pp?|"
    r"vs|cf|al|ca|approx|resp|e\.g|i\.e|a\.m|p\.m|U\.S|U\.K|[A-Z](?:\.[A-Z])+)\.$"
)
_LONGEST_ABBREVIATION = 16


def sentence_ends(text: str) -> list[int]:
    """See `_sentences.pyi`."""
    ends = [found.end() for found in _found(text) if _is_end(text, found)]
    if text and (not ends or ends[-1] != len(text)):
        ends.append(len(text))
    result: list[int] = []
    start = 0
    for end in ends:
        result += cuts(text, start, end)
        start = end
    return _without_blank(text, result)


def _found(text: str) -> Iterator["re.Match[str]"]:
    """The matches of `_ENDS`, in order, none inside another."""
    behind = 0
    for candidate in _CANDIDATES.finditer(text):
        if candidate.start() >= behind and (found := _ENDS.match(text, candidate.start())):
            behind = found.end()
            yield found


def _is_end(text: str, found: "re.Match[str]") -> bool:
    """True unless a full stop ends an abbreviation, or lower case follows it."""
    if found[0][0] != ".":
        return True
    after = text[found.end() : found.end() + 1]
    if after.islower() and "\n\n" not in found[0]:
        return False
    return "\n\n" in found[0] or not (after and ends_abbreviation(text, found.start()))


def ends_abbreviation(text: str, stop: int) -> bool:
    """True if the full stop at `stop` ends an abbreviation."""
    before = text[max(0, stop + 1 - _LONGEST_ABBREVIATION) : stop + 1]
    return _ABBREVIATION.search(before) is not None


def cuts(text: str, start: int, end: int) -> list[int]:
    """Returns `end`, preceded by the cuts that keep each part within MAX_SENTENCE_CHARS."""
    cuts = []
    while end - start > MAX_SENTENCE_CHARS:
        window = text[start : start + MAX_SENTENCE_CHARS]
        half = MAX_SENTENCE_CHARS // 2
        at = window.rfind("\n", half) + 1 or window.rfind(" ", half) + 1
        start += at or MAX_SENTENCE_CHARS
        cuts.append(start)
    return [*cuts, end]


def _without_blank(text: str, ends: list[int]) -> list[int]:
    """Merges blank sentences into the previous ones."""
    kept: list[int] = []
    start = 0
    for end in ends:
        if kept and not text[start:end].strip():
            kept[-1] = end
        else:
            kept.append(end)
        start = end
    return kept
