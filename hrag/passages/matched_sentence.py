"""The sentence that a citation points to: the one of the best leaf that matched best.

A leaf may touch several sections and pages, and a passage nearly always does; the section
that holds most of it is often not the one that answers. So a citation names the section and
pages of one sentence. Pure; knows nothing of queries, only of where their terms occur.

A heading is a sentence of its own. It is worth less than a sentence below it with the same
terms, because it says less.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from typing import Any

from numpy.typing import NDArray

from hrag.passages.headings import heading_end
from hrag.passages.sentence_context import surroundings
from hrag.passages.tree_text import TreeText
from hrag.sentences import MAX_SENTENCE_CHARS, has_word, sentence_ends
from hrag.tree import NONE, ChunkRecord, Section
from hrag.types import MatchedSentence, Span


@dataclass(frozen=True, slots=True)
class TermMatches:
    """Where a query's terms occur in a leaf: four arrays of the same length.

    `char_starts` and `char_ends` are code points of the document. `which` is the term's
    number. `weights` says how much the term counts, the same wherever it occurs.
    """

    char_starts: NDArray[Any]
    char_ends: NDArray[Any]
    weights: NDArray[Any]
    which: NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """A part of a document's text, and where it begins."""

    text: str
    byte_start: int
    char_start: int

    def span(self, char_start: int, char_end: int) -> Span:
        """Where a part of it lies, without the white space around that part."""
        part = self.text[char_start - self.char_start : char_end - self.char_start]
        if part.strip():
            char_start += len(part) - len(part.lstrip())
            part = part.strip()
        before = self.text[: char_start - self.char_start]
        byte_start = self.byte_start + len(before.encode())
        byte_end = byte_start + len(part.encode())
        return Span(byte_start, byte_end, char_start, char_start + len(part))


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence in code points of the document; `section` is an index or NONE."""

    start: int
    end: int
    section: int
    is_heading: bool


def matched_sentence(
    document: TreeText, leaf: ChunkRecord, matches: TermMatches
) -> MatchedSentence:
    """Returns the sentence of a leaf whose terms have the highest sum of weights.

    A term counts once in a sentence. Of equal sentences the first one is returned, but a
    heading only if no sentence directly below it is equal. If no term occurs, the sentence
    is the first one of the section that holds most of the leaf. A sentence that the leaf's
    edge cuts is returned whole if it ends within MAX_SENTENCE_CHARS characters of the edge.
    """
    excerpt = _Excerpt(document.content(leaf), leaf.byte_start, leaf.char_start)
    sentences = _sentences(excerpt, document.outline.sections)
    weights = _weights(sentences, matches)
    if any(weights):
        best = _heaviest(sentences, weights)
    else:
        best = _first(sentences, excerpt, leaf, document.outline.sections)
    span = excerpt.span(best.start, best.end)
    if best is sentences[0] or best is sentences[-1]:  # The leaf's edge may cut it.
        span = _whole(document, leaf, best)
    first_page, last_page = document.outline.page_range(span.char_start, span.char_end)
    path = document.outline.section_path(best.section)
    return MatchedSentence(span, path, first_page, last_page)


def _sentences(excerpt: _Excerpt, sections: Sequence[Section]) -> list[_Sentence]:
    """The sentences of a text; sections and the text below a heading begin new ones."""
    headings = _headings(excerpt, sections)
    cuts = {excerpt.char_start, *headings, *headings.values()}
    starts = list(headings)
    for end in sentence_ends(excerpt.text):
        cut = excerpt.char_start + end
        before = bisect_left(starts, cut) - 1
        if before < 0 or headings[starts[before]] <= cut:  # Else it is inside the heading.
            cuts.add(cut)
    found = []
    for start, end in pairwise(sorted(cuts)):
        section = _section_at(sections, start)
        found.append(_Sentence(start, end, section, headings.get(start, start) == end))
    return found


def _headings(excerpt: _Excerpt, sections: Sequence[Section]) -> dict[int, int]:
    """Start and end of each heading in a text; equal for a section without one."""
    text_end = excerpt.char_start + len(excerpt.text)
    first = bisect_left(sections, excerpt.char_start, key=_char_start)
    last = bisect_left(sections, text_end, key=_char_start)
    headings: dict[int, int] = {}
    for section in sections[first:last]:
        start = section.char_start
        end = excerpt.char_start + heading_end(
            excerpt.text, start - excerpt.char_start, section.title
        )
        headings[start] = max(end, headings.get(start, start))
    return headings


def _char_start(section: Section) -> int:
    return section.char_start


def _section_at(sections: Sequence[Section], char: int) -> int:
    """Index of the innermost section that holds a character, or NONE."""
    at = bisect_right(sections, char, key=_char_start) - 1
    return NONE if at < 0 else at


def _weights(sentences: Sequence[_Sentence], matches: TermMatches) -> list[float]:
    """The sum of weights of the distinct terms in each sentence.

    Equal terms give equal sums, in whatever order they occur.
    """
    terms: list[dict[int, float]] = [{} for _ in sentences]
    starts = [sentence.start for sentence in sentences]
    for start, end, weight, which in zip(
        matches.char_starts.tolist(),
        matches.char_ends.tolist(),
        matches.weights.tolist(),
        matches.which.tolist(),
        strict=True,
    ):
        at = max(bisect_right(starts, start) - 1, 0)
        if starts[at] <= start and end <= sentences[at].end:
            terms[at][which] = weight
    return [fsum(each.values()) for each in terms]


def _heaviest(sentences: Sequence[_Sentence], weights: Sequence[float]) -> _Sentence:
    """The first of the heaviest; one below a heading rather than that heading."""
    most = max(weights)
    heaviest = [each for each, weight in zip(sentences, weights, strict=True) if weight == most]
    first = heaviest[0]
    below = (each for each in heaviest if each.section == first.section and not each.is_heading)
    return next(below, first)


def _first(
    sentences: Sequence[_Sentence],
    excerpt: _Excerpt,
    leaf: ChunkRecord,
    sections: Sequence[Section],
) -> _Sentence:
    """The first sentence of the section that holds most of the leaf; a heading if it must be."""
    start = 0 if leaf.section == NONE else sections[leaf.section].char_start
    inside = [each for each in sentences if each.start >= start] or sentences
    offset = excerpt.char_start
    with_words = [
        each for each in inside if has_word(excerpt.text[each.start - offset : each.end - offset])
    ]
    below = (each for each in with_words if not each.is_heading)
    return next(below, (with_words or inside)[0])


def _whole(document: TreeText, leaf: ChunkRecord, sentence: _Sentence) -> Span:
    """Where a sentence at an edge of a leaf lies, with the part of it outside the leaf."""
    before, inside, behind = surroundings(document, leaf, MAX_SENTENCE_CHARS)
    text = before + inside + behind
    excerpt = _Excerpt(text, leaf.byte_start - len(before.encode()), leaf.char_start - len(before))
    text_end = excerpt.char_start + len(text)
    reaches_end = leaf.byte_end + len(behind.encode()) == len(document.text)
    parts = [
        each
        for each in _sentences(excerpt, document.outline.sections)
        if each.start < sentence.end and sentence.start < each.end
    ]
    start, end = sentence.start, sentence.end
    if start == leaf.char_start and (parts[0].start > excerpt.char_start or not excerpt.byte_start):
        start = parts[0].start
    if end == leaf.char_end and (parts[-1].end < text_end or reaches_end):
        end = parts[-1].end
    return excerpt.span(start, end)
