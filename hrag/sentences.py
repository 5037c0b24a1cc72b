"""Where the sentences of a text end, in English, Chinese and what is written like them.

Sentences tile a text: each begins where the one before ends, and has the white space
behind it. Rules rather than a model, and careful ones: two sentences taken for one cost
little, half a sentence is of no use to anybody. What has no end for long, such as a
table, is cut at a line or a word.
"""

import re
from collections.abc import Sequence

MAX_SENTENCE_CHARS = 1000

_CLOSERS = "\"')\\]}”’」』）》】"
# Possessive, and never begun inside a run, so that no text takes more than linear time.
_ENDS = re.compile(
    rf"[。！？；…．｡]++[{_CLOSERS}]*+\s*+"  # Of Chinese and Japanese, where no blank follows;
    rf"|(?<![.!?])[.!?]++[{_CLOSERS}]*+\s++"
    r"|\n[^\S\n]*+\n\s*+|\f\s*+"  # the end of a paragraph or page;
    r"|\n(?=[ \t]{0,8}(?:[-*+•] |\d{1,3}[.)] |#{1,6} |\|))"  # of a line before an item;
    r"|(?:\A|(?<=\n))#{1,6} [^\n]*+\n\s*+"  # of a heading.
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“‘])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Mt|No|Nos|Fig|Figs|Eq|Sec|Ch|Vol|pp?|"
    r"vs|cf|al|ca|approx|resp|e\.g|i\.e|a\.m|p\.m|U\.S|U\.K|[A-Z](?:\.[A-Z])+)\.$"
)
_LONGEST_ABBREVIATION = 16
_WORD = re.compile(r"\w")


def sentence_ends(text: str) -> list[int]:
    """Where each sentence ends, ascending, in characters; the last is the text's end."""
    ends = [found.end() for found in _ENDS.finditer(text) if _is_end(text, found)]
    if text and (not ends or ends[-1] != len(text)):
        ends.append(len(text))
    result: list[int] = []
    start = 0
    for end in ends:
        result += _cuts(text, start, end)
        start = end
    return _without_blank(text, result)


def says_something(text: str) -> bool:
    """Whether there is more in a text than signs and blanks."""
    return _WORD.search(text) is not None


def fitting(sizes: Sequence[int], keep: int, budget: int) -> range | None:
    """Consecutive sentences that come to `budget` at most, number `keep` among them.

    From the first on; where they do not reach that one then, from it on. None where it
    does not fit by itself.
    """
    for first in (0, keep):
        last, left = first, budget
        while last < len(sizes) and sizes[last] <= left:
            left -= sizes[last]
            last += 1
        if last > keep:
            return range(first, last)
    return None


def _is_end(text: str, found: "re.Match[str]") -> bool:
    """Whether a full stop is no abbreviation's, and nothing goes on in lower case behind it."""
    if found[0][0] != ".":
        return True
    after = text[found.end() : found.end() + 1]
    if after.islower() and "\n\n" not in found[0]:
        return False
    stop = found.start() + 1
    before = text[max(0, stop - _LONGEST_ABBREVIATION) : stop]
    return "\n\n" in found[0] or not (after and _ABBREVIATION.search(before))


def _cuts(text: str, start: int, end: int) -> list[int]:
    """The end, and before it as many cuts as keep every part short enough."""
    cuts = []
    while end - start > MAX_SENTENCE_CHARS:
        window = text[start : start + MAX_SENTENCE_CHARS]
        half = MAX_SENTENCE_CHARS // 2
        at = window.rfind("\n", half) + 1 or window.rfind(" ", half) + 1
        start += at or MAX_SENTENCE_CHARS
        cuts.append(start)
    return [*cuts, end]


def _without_blank(text: str, ends: list[int]) -> list[int]:
    """With what is blank added to the sentence before it."""
    kept: list[int] = []
    start = 0
    for end in ends:
        if kept and not text[start:end].strip():
            kept[-1] = end
        else:
            kept.append(end)
        start = end
    return kept
