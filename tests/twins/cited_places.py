"""The twins of `_cited.pyx`: they slice strings, and return the same spans."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from hrag_fast import MAX_SECTIONS_TRIED, MAX_SENTENCE_CHARS, REACH
from tests.twins.sentences import sentence_ends

_NONE = 0xFFFF_FFFF
_WORD = re.compile(r"\w")

HeadingEnd = Callable[[str, int, int], int]


@dataclass(frozen=True, slots=True)
class _Leaf:
    byte_start: int
    byte_end: int
    char_start: int
    char_end: int
    section: int


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """A leaf with some of the text before and after it, cut into sentences.

    Sentence i reaches from `borders[i]` to `borders[i + 1]`. `headings` maps the start of each
    heading to its end, and the start of a section without a heading to itself. Borders and headings
    are offsets in code points of the document. `inside` is the range of the indexes of the
    sentences that touch the leaf. `known` is the range of the indexes of real borders. Any other
    border exists only because the excerpt begins or ends there.
    """

    text: str
    byte_start: int
    char_start: int
    borders: list[int]
    headings: dict[int, int]
    inside: range
    known: range

    @classmethod
    def around(
        cls, text: bytes, leaf: _Leaf, starts: Sequence[int], heading_end: HeadingEnd, reach: int
    ) -> "_Excerpt":
        """Returns the leaf with up to `reach` characters before and after it."""
        before = text[: leaf.byte_start].decode()[-reach:]
        after = text[leaf.byte_end :].decode()[:reach]
        excerpt = before + text[leaf.byte_start : leaf.byte_end].decode() + after
        byte_start = leaf.byte_start - len(before.encode())
        char_start = leaf.char_start - len(before)
        headings = _headings(excerpt, char_start, starts, heading_end)
        borders = [char_start, *(char_start + end for end in sentence_ends(excerpt))]
        if headings:
            borders = _borders(borders, headings)
        first = bisect_right(borders, leaf.char_start) - 1
        last = bisect_left(borders, leaf.char_end)
        begins = byte_start == 0
        ends = leaf.byte_end + len(after.encode()) == len(text)
        known = range(0 if begins else 1, len(borders) if ends else len(borders) - 1)
        return cls(excerpt, byte_start, char_start, borders, headings, range(first, last), known)

    def is_heading(self, sentence: int) -> bool:
        return self.headings.get(self.borders[sentence]) == self.borders[sentence + 1]

    def is_whole(self, sentence: int) -> bool:
        return sentence in self.known and sentence + 1 in self.known

    def inner_part(self, sentence: int, leaf: _Leaf) -> str:
        """Returns the part of a sentence that lies in the leaf."""
        start = max(self.borders[sentence], leaf.char_start) - self.char_start
        end = min(self.borders[sentence + 1], leaf.char_end) - self.char_start
        return self.text[start:end]

    def span(self, sentence: int, leaf: _Leaf) -> tuple[int, int, int, int]:
        """Returns the span of a sentence, without the white space around it.

        If a border of the sentence is not known, the leaf's start or end replaces it.
        """
        char_start, char_end = self.borders[sentence : sentence + 2]
        if sentence not in self.known:
            char_start = leaf.char_start
        if sentence + 1 not in self.known:
            char_end = leaf.char_end
        part = self.text[char_start - self.char_start : char_end - self.char_start]
        if stripped := part.strip():
            char_start += part.index(stripped)
            part = stripped
        before = self.text[: char_start - self.char_start]
        byte_start = self.byte_start + len(before.encode())
        byte_end = byte_start + len(part.encode())
        return byte_start, byte_end, char_start, char_start + len(part)


def matched_sentence(
    text: bytes,
    leaf: Sequence[int],
    section_starts: Sequence[int],
    heading_end: HeadingEnd,
    matches: Any = None,
    weights: Sequence[float] = (),
) -> tuple[int, int, int, int]:
    """The twin of `hrag_fast.matched_sentence`, which `_cited.pyi` documents."""
    chunk = _Leaf(leaf[0], leaf[1], leaf[2], leaf[3], section=leaf[-1])
    for reach in (REACH, MAX_SENTENCE_CHARS):
        excerpt = _Excerpt.around(text, chunk, section_starts, heading_end, reach)
        best = _best(excerpt, chunk, matches, weights, section_starts)
        if excerpt.is_whole(best):
            break
    return excerpt.span(best, chunk)


def merged_spans(parts: Sequence[tuple[int, Any]], first: int, end: int) -> list[tuple[int, int]]:
    """The twin of `hrag_fast.merged_spans`, which `_cited.pyi` documents."""
    merged: list[tuple[int, int]] = []
    spans = (
        (char_start + start, char_start + stop)
        for char_start, matches in parts
        for start, stop in zip(matches.starts.tolist(), matches.ends.tolist(), strict=True)
    )
    for start, stop in sorted(span for span in spans if first <= span[0] and span[1] <= end):
        if merged and start < merged[-1][1]:
            last = merged.pop()
            merged.append((last[0], max(last[1], stop)))
        else:
            merged.append((start, stop))
    return merged


def _headings(
    text: str, char_start: int, starts: Sequence[int], heading_end: HeadingEnd
) -> dict[int, int]:
    """Returns the end of the heading of each section that begins in a text, by its start.

    The dict is in order of the text. If a section has no heading, the end equals the start. If
    several sections begin at the same character, only the first MAX_SECTIONS_TRIED are searched for
    a heading.
    """
    first = bisect_left(starts, char_start)
    last = bisect_left(starts, char_start + len(text), first)
    headings: dict[int, int] = {}
    for start, sections in groupby(range(first, last), starts.__getitem__):
        ends = (
            char_start + heading_end(text, start - char_start, section)
            for section in islice(sections, MAX_SECTIONS_TRIED)
        )
        headings[start] = max(start, *ends)
    return headings


def _borders(borders: Sequence[int], headings: Mapping[int, int]) -> list[int]:
    """Returns the borders of sentences and of headings, without those inside a heading."""
    starts = list(headings)
    all_borders = {*starts, *headings.values()}
    for border in borders:
        before = bisect_left(starts, border) - 1
        if before < 0 or headings[starts[before]] <= border:
            all_borders.add(border)
    return sorted(all_borders)


def _weights(
    borders: Sequence[int], leaf: _Leaf, matches: Any, weights: Sequence[float]
) -> dict[int, float]:
    """Returns, for each sentence that has terms, the sum of the weights of its distinct terms.

    Weights are added in the order of the terms' indexes. So sentences with the same terms have
    exactly the same sum.
    """
    terms: dict[int, set[int]] = {}
    for start, end, which in zip(
        matches.starts.tolist(), matches.ends.tolist(), matches.which.tolist(), strict=True
    ):
        sentence = bisect_right(borders, leaf.char_start + start) - 1
        ends = borders[sentence + 1 : sentence + 2]
        if weights[which] > 0 and ends and leaf.char_start + end <= ends[0]:
            terms.setdefault(sentence, set()).add(which)
    return {
        sentence: sum(float(weights[term]) for term in sorted(sentence_terms))
        for sentence, sentence_terms in terms.items()
    }


def _best(
    excerpt: _Excerpt,
    leaf: _Leaf,
    matches: Any,
    weights: Sequence[float],
    starts: Sequence[int],
) -> int:
    """Returns the index of the sentence to cite."""
    if matches is not None and (sums := _weights(excerpt.borders, leaf, matches, weights)):
        return _heaviest(excerpt, sums, starts)
    return _first(excerpt, leaf, starts)


def _heaviest(excerpt: _Excerpt, weights: Mapping[int, float], starts: Sequence[int]) -> int:
    """Returns the index of the first sentence that has the highest weight.

    If this sentence is a heading, and another sentence of the same section has the same weight,
    returns the index of the other sentence.
    """
    highest = max(weights.values())
    first, *later = sorted(sentence for sentence, weight in weights.items() if weight == highest)
    if not excerpt.is_heading(first):
        return first
    section = bisect_right(starts, excerpt.borders[first])
    below = (
        sentence
        for sentence in later
        if bisect_right(starts, excerpt.borders[sentence]) == section
        and not excerpt.is_heading(sentence)
    )
    return next(below, first)


def _first(excerpt: _Excerpt, leaf: _Leaf, starts: Sequence[int]) -> int:
    """Returns the index of the sentence to cite if no sentence has a weighted term.

    It is the first sentence with a word in the section that has most of the leaf. A heading is
    returned only if the section has no other sentence with a word.
    """
    start = 0 if leaf.section == _NONE else starts[leaf.section]
    in_section = [number for number in excerpt.inside if excerpt.borders[number] >= start]
    sentences = in_section or excerpt.inside
    with_words = [number for number in sentences if _WORD.search(excerpt.inner_part(number, leaf))]
    below = (number for number in with_words if not excerpt.is_heading(number))
    return next(below, (with_words or sentences)[0])
