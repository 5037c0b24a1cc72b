"""SENTENCE_WINDOW: leaves narrowed to their best sentence, widened to what is around it.

Pure: stretches of documents and the scores of their sentences in, passages out. Windows of
one document that overlap become one, so no text comes twice.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hrag import tokens
from hrag.engine import Stretch
from hrag.types import Aggregation, Chunk, MatchedChild, Passage, SearchQuery, Span

_SAYS_SOMETHING = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a document with the sentences in it that matched, best first.

    `chunk` is the leaf that the best of them lies in, without content.
    """

    chunk: Chunk
    content: str
    span: Span
    pages: tuple[int, int]
    matched: tuple[MatchedChild, ...]

    def meets(self, other: "Window", *, or_touches: bool) -> bool:
        """Whether they share text or, if wanted, have none between them."""
        if self.chunk.document_id != other.chunk.document_id:
            return False
        gap = max(self.span.char_start, other.span.char_start) - min(
            self.span.char_end, other.span.char_end
        )
        return gap < 0 or (or_touches and gap == 0)

    def joined(self, other: "Window") -> "Window":
        """Both as one; they share text or touch."""
        first, last = sorted((self, other), key=lambda each: each.span.char_start)
        start, end = first.span, max(first.span, last.span, key=lambda span: span.char_end)
        of_sentence = {each.span: each for each in sorted(other.matched + self.matched, key=_score)}
        matched = tuple(sorted(of_sentence.values(), key=_score, reverse=True))
        best = max(self, other, key=lambda each: each.matched[0].score)
        return Window(
            best.chunk,
            first.content + last.content[max(first.span.char_end - last.span.char_start, 0) :],
            Span(start.byte_start, end.byte_end, start.char_start, end.char_end),
            (first.pages[0], max(first.pages[1], last.pages[1])),
            matched,
        )

    def score(self, aggregation: Aggregation) -> float:
        """Of its sentences that matched."""
        scores = [each.score for each in self.matched]
        match aggregation:
            case Aggregation.MAX:
                return scores[0]
            case Aggregation.SUM:
                return sum(scores)
            case Aggregation.MEAN:
                return sum(scores) / len(scores)
            case Aggregation.COUNT:
                return float(len(scores))

    def passage(self, aggregation: Aggregation) -> Passage:
        chunk = replace(
            self.chunk,
            content=self.content,
            span=self.span,
            first_page=self.pages[0],
            last_page=self.pages[1],
            token_count=len(tokens.encode(self.content)),
        )
        in_order = sorted(self.matched, key=lambda each: each.span.char_start)
        leaves = tuple(dict.fromkeys(each.chunk_id for each in in_order))
        merged = leaves if len(leaves) > 1 else ()
        return Passage(chunk, self.score(aggregation), self.matched, merged)


def _score(matched: MatchedChild) -> float:
    return matched.score


def candidates(stretch: Stretch) -> list[int]:
    """Which of the leaf's sentences may be its best: those that say something, or the first."""
    found = [n for n in stretch.own if _SAYS_SOMETHING.search(stretch.sentences[n].content)]
    return found or [stretch.own.start]


def window(stretch: Stretch, number: int, score: float, margin: int) -> Window:
    """Sentence `number` of a stretch with `margin` on either side."""
    best = stretch.sentences[number]
    around = stretch.sentences[max(number - margin, 0) : number + margin + 1]
    first, last = around[0].span, around[-1].span
    return Window(
        stretch.chunk,
        "".join(sentence.content for sentence in around),
        Span(first.byte_start, last.byte_end, first.char_start, last.char_end),
        (around[0].first_page, around[-1].last_page),
        (MatchedChild(stretch.chunk.chunk_id, score, best.span),),
    )


def with_another(windows: Sequence[Window], new: Window, *, or_touches: bool) -> list[Window]:
    """With one more, joined with those it meets."""
    apart = []
    for each in windows:
        if each.meets(new, or_touches=or_touches):
            new = new.joined(each)
        else:
            apart.append(each)
    return [*apart, new]


def chosen(found: Sequence[Window], query: SearchQuery) -> tuple[Passage, ...]:
    """Passages of the windows, best first, that reach the score and fit the budget."""
    passages = [each.passage(query.aggregation) for each in found]
    left = query.token_budget or sys.maxsize
    taken = []
    for passage in sorted(passages, key=lambda passage: passage.score, reverse=True):
        if query.min_score is not None and passage.score < query.min_score:
            break
        if passage.chunk.token_count <= left:
            taken.append(passage)
            left -= passage.chunk.token_count
    return tuple(taken)
