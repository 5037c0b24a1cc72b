"""The sentence that a citation points to: the one of the best leaf that matched best.

A leaf may touch several sections and pages, and a passage nearly always does; the section
that holds most of it is often not the one that answers. So a citation names the section and
pages of one sentence. Pure; knows nothing of queries, only of where their terms occur.

A heading is a sentence of its own. It is worth less than a sentence below it with the same
terms, because it says less.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, TypeAlias

from numpy.typing import NDArray

from hrag.passages.headings import heading_end
from hrag.passages.sentence_context import surroundings
from hrag.passages.tree_text import TreeText
from hrag.sentences import MAX_SENTENCE_CHARS, has_word, sentence_ends
from hrag.tree import NONE, ChunkRecord, Section
from hrag.types import MatchedSentence, Span

# Characters read on either side of a leaf to complete a sentence, before MAX_SENTENCE_CHARS are:
# most leaves begin and end with whole sentences.
_REACH = MAX_SENTENCE_CHARS // 8


_Numbers: TypeAlias = "NDArray[Any] | array[int]"


@dataclass(frozen=True, slots=True)
class TermMatches:
    """Where a query's terms occur in a leaf: four arrays of the same length.

    `char_starts` and `char_ends` are code points of the document. `which` is the term's
    number. `weights` says how much the term counts, the same wherever it occurs.
    """

    char_starts: _Numbers
    char_ends: _Numbers
    weights: _Numbers
    which: _Numbers


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """A leaf's text with some more on either side, and its sentences.

    Sentence i is from `borders[i]` to `borders[i + 1]`; those that touch the leaf are `inside`.
    `headings` maps the start of each heading to its end, and the start of a section without a
    heading to itself. All are code points of the document. `known` is the range of borders
    that do not only come from where the excerpt was cut.
    """

    text: str
    byte_start: int
    char_start: int
    borders: list[int]
    headings: dict[int, int]
    inside: range
    known: range

    @classmethod
    def of(cls, document: TreeText, leaf: ChunkRecord, reach: int) -> "_Excerpt":
        """The leaf with `reach` more characters on either side, if there are as many."""
        before, inside, behind = surroundings(document, leaf, reach)
        text = before + inside + behind
        byte_start = leaf.byte_start - len(before.encode())
        char_start = leaf.char_start - len(before)
        headings = _headings(text, char_start, document.outline.sections)
        borders = [char_start, *(char_start + end for end in sentence_ends(text))]
        if headings:
            borders = _borders(borders, headings)
        first = bisect_right(borders, leaf.char_start) - 1
        last = bisect_left(borders, leaf.char_end)
        begins = byte_start == 0
        ends = leaf.byte_end + len(behind.encode()) == len(document.text)
        known = range(0 if begins else 1, len(borders) if ends else len(borders) - 1)
        return cls(text, byte_start, char_start, borders, headings, range(first, last), known)

    def is_heading(self, sentence: int) -> bool:
        return self.headings.get(self.borders[sentence]) == self.borders[sentence + 1]

    def is_whole(self, sentence: int) -> bool:
        return sentence in self.known and sentence + 1 in self.known

    def inner_part(self, sentence: int, leaf: ChunkRecord) -> str:
        """The part of a sentence that lies in the leaf."""
        start = max(self.borders[sentence], leaf.char_start) - self.char_start
        end = min(self.borders[sentence + 1], leaf.char_end) - self.char_start
        return self.text[start:end]

    def span(self, sentence: int, leaf: ChunkRecord) -> Span:
        """Where a sentence lies, without the white space around it.

        It ends at the leaf's edge where its own end is not known.
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
        return Span(byte_start, byte_end, char_start, char_start + len(part))


def matched_sentence(
    document: TreeText, leaf: ChunkRecord, matches: TermMatches
) -> MatchedSentence:
    """Returns the sentence of a leaf whose terms have the highest sum of weights.

    A term counts once in a sentence. Of equal sentences the first one is returned, but a
    heading only if no sentence of its own section is equal. If no term occurs, the sentence
    is the first one of the section that holds most of the leaf. A sentence that the leaf's
    edge cuts is returned whole if it ends within MAX_SENTENCE_CHARS characters of the edge.
    """
    sections = document.outline.sections
    excerpt = _Excerpt.of(document, leaf, _REACH)
    best = _best(excerpt, leaf, matches, sections)
    if not excerpt.is_whole(best):
        excerpt = _Excerpt.of(document, leaf, MAX_SENTENCE_CHARS)
        best = _best(excerpt, leaf, matches, sections)
    span = excerpt.span(best, leaf)
    first_page, last_page = document.outline.page_range(span.char_start, span.char_end)
    path = document.outline.section_path(_section_at(sections, span.char_start))
    return MatchedSentence(span, path, first_page, last_page)


def _headings(text: str, char_start: int, sections: Sequence[Section]) -> dict[int, int]:
    """Start and end of the heading of each section that begins in a text, in order.

    They are equal for a section without one.
    """
    first = bisect_left(sections, char_start, key=_char_start)
    last = bisect_left(sections, char_start + len(text), first, key=_char_start)
    headings: dict[int, int] = {}
    for section in sections[first:last]:
        start = section.char_start
        end = char_start + heading_end(text, start - char_start, section.title)
        headings[start] = max(end, headings.get(start, start))
    return headings


def _borders(borders: Sequence[int], headings: Mapping[int, int]) -> list[int]:
    """Borders of sentences, with those of headings and without those inside of them."""
    starts = list(headings)
    found = {*starts, *headings.values()}
    for border in borders:
        before = bisect_left(starts, border) - 1
        if before < 0 or headings[starts[before]] <= border:
            found.add(border)
    return sorted(found)


def _char_start(section: Section) -> int:
    return section.char_start


def _section_at(sections: Sequence[Section], char: int) -> int:
    """Index of the innermost section that holds a character, or NONE."""
    at = bisect_right(sections, char, key=_char_start) - 1
    return NONE if at < 0 else at


def _weights(borders: Sequence[int], matches: TermMatches) -> dict[int, float]:
    """The sum of weights of the distinct terms in each sentence that holds any weight.

    Equal terms give equal sums, in whatever order they occur.
    """
    terms: dict[int, dict[int, float]] = {}
    for start, end, weight, which in zip(
        matches.char_starts.tolist(),
        matches.char_ends.tolist(),
        matches.weights.tolist(),
        matches.which.tolist(),
        strict=True,
    ):
        sentence = bisect_right(borders, start) - 1
        if 0 <= sentence < len(borders) - 1 and end <= borders[sentence + 1] and weight > 0:
            terms.setdefault(sentence, {})[which] = weight
    return {sentence: fsum(each.values()) for sentence, each in terms.items()}


def _best(
    excerpt: _Excerpt, leaf: ChunkRecord, matches: TermMatches, sections: Sequence[Section]
) -> int:
    """The number of the sentence that is cited."""
    if weights := _weights(excerpt.borders, matches):
        return _heaviest(excerpt, weights, sections)
    return _first(excerpt, leaf, sections)


def _heaviest(excerpt: _Excerpt, weights: Mapping[int, float], sections: Sequence[Section]) -> int:
    """The first of the heaviest sentences; one of a section rather than its heading."""
    most = max(weights.values())
    first, *others = sorted(each for each, weight in weights.items() if weight == most)
    if not excerpt.is_heading(first):
        return first
    section = _section_at(sections, excerpt.borders[first])
    below = (
        each
        for each in others
        if _section_at(sections, excerpt.borders[each]) == section and not excerpt.is_heading(each)
    )
    return next(below, first)


def _first(excerpt: _Excerpt, leaf: ChunkRecord, sections: Sequence[Section]) -> int:
    """The first sentence of the section that holds most of the leaf; a heading if it must be."""
    start = 0 if leaf.section == NONE else sections[leaf.section].char_start
    in_section = [each for each in excerpt.inside if excerpt.borders[each] >= start]
    sentences = in_section or excerpt.inside
    heading = None
    for each in sentences:
        if has_word(excerpt.inner_part(each, leaf)):
            if not excerpt.is_heading(each):
                return each
            heading = each if heading is None else heading
    return sentences[0] if heading is None else heading
