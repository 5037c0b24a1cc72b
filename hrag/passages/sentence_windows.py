"""SENTENCE_WINDOW: leaves narrowed to their best sentence, widened to what is around it.

Pure: stretches of documents and the scores of their sentences in, passages out. Windows of
one document that overlap become one, so no text comes twice.
"""

import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hrag import tokens
from hrag.passages.sentence_context import Sentence, SentenceContext
from hrag.sentences import fitting, says_something
from hrag.types import Aggregation, Chunk, MatchedChild, PageStart, Passage, SearchQuery, Span


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive sentences of a document, and those of them that matched, best first.

    `chunk` is the leaf that the best of them lies in, without content.
    """

    chunk: Chunk
    sentences: tuple[Sentence, ...]
    matched: tuple[MatchedChild, ...]

    @property
    def content(self) -> str:
        return "".join(sentence.content for sentence in self.sentences)

    @property
    def span(self) -> Span:
        first, last = self.sentences[0].span, self.sentences[-1].span
        return Span(first.byte_start, last.byte_end, first.char_start, last.char_end)

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
        more = (_behind(sentence, first.span) for sentence in last.sentences)
        of_sentence = {each.span: each for each in sorted(other.matched + self.matched, key=_score)}
        return Window(
            max(self, other, key=lambda each: each.matched[0].score).chunk,
            (*first.sentences, *filter(None, more)),
            tuple(sorted(of_sentence.values(), key=_score, reverse=True)),
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
            first_page=self.sentences[0].first_page,
            last_page=self.sentences[-1].last_page,
            token_count=len(tokens.encode(self.content)),
            page_starts=self._page_starts(),
        )
        in_order = sorted(self.matched, key=lambda each: each.span.char_start)
        leaves = tuple(dict.fromkeys(each.chunk_id for each in in_order))
        merged = leaves if len(leaves) > 1 else ()
        return Passage(chunk, self.score(aggregation), self.matched, merged)

    def _page_starts(self) -> tuple[PageStart, ...]:
        starts = list(self.sentences[0].page_starts)
        for before, sentence in pairwise(self.sentences):
            if sentence.first_page != before.last_page:
                starts.append(PageStart(sentence.first_page, sentence.span.char_start))
            starts += sentence.page_starts
        return tuple(starts)

    def cut(self, token_budget: int) -> "Window | None":
        """As many of its sentences as fit, the best that matched among them."""
        sizes = [len(tokens.encode(sentence.content)) for sentence in self.sentences]
        best = self.matched[0].span
        starts = [sentence.span.char_end for sentence in self.sentences]
        kept = fitting(sizes, bisect_right(starts, best.char_start), token_budget)
        if kept is None:
            return None
        sentences = self.sentences[kept.start : kept.stop]
        end = sentences[-1].span.char_end
        start = sentences[0].span.char_start
        inside = [each for each in self.matched if start <= each.span.char_start < end]
        return replace(self, sentences=sentences, matched=tuple(inside))


def _score(matched: MatchedChild) -> float:
    return matched.score


def _behind(sentence: Sentence, span: Span) -> Sentence | None:
    """What of a sentence lies behind the span: mostly all of it, or nothing."""
    hidden = max(span.char_end - sentence.span.char_start, 0)
    if hidden == 0:
        return sentence
    if hidden >= len(sentence.content):
        return None
    rest = replace(sentence.span, byte_start=span.byte_end, char_start=span.char_end)
    return replace(sentence, content=sentence.content[hidden:], span=rest)


def candidates(stretch: SentenceContext) -> list[int]:
    """Which of the leaf's sentences may be its best: those that say something, or the first."""
    found = [n for n in stretch.own if says_something(stretch.sentences[n].content)]
    return found or [stretch.own.start]


def window(stretch: SentenceContext, number: int, score: float, margin: int) -> Window:
    """Sentence `number` of a stretch with `margin` on either side."""
    around = stretch.sentences[max(number - margin, 0) : number + margin + 1]
    best = stretch.sentences[number].span
    return Window(stretch.chunk, around, (MatchedChild(stretch.chunk.chunk_id, score, best),))


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
    left = query.token_budget or sys.maxsize
    taken = []
    for each in sorted(found, key=lambda each: each.score(query.aggregation), reverse=True):
        passage = each.passage(query.aggregation)
        if query.min_score is not None and passage.score < query.min_score:
            break
        if passage.chunk.token_count <= left:
            taken.append(passage)
            left -= passage.chunk.token_count
        elif query.cut_last:
            part = each.cut(left)
            return (*taken, part.passage(query.aggregation)) if part else tuple(taken)
    return tuple(taken)
