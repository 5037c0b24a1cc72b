"""SENTENCE_WINDOW: the best sentence of each leaf, with the sentences around it.

After LlamaIndex's SentenceWindowNodeParser. Sentence contexts and the scores of their
sentences in, passages out. Windows of one document that overlap are joined, so no text is
returned twice.
"""

import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise

from hrag.passages.sentence_context import Sentence, SentenceContext
from hrag.text import tokens
from hrag.text.sentences import fitting, has_word
from hrag.values.chunks import Chunk, PageStart, Span
from hrag.values.search import Aggregation, MatchedChild, Passage, SearchQuery


@dataclass(frozen=True)
class Window:
    """Consecutive sentences of a document, and those of them that matched, best first.

    `chunk` is the leaf that holds the best of them, without content.
    """

    chunk: Chunk
    sentences: tuple[Sentence, ...]
    matched: tuple[MatchedChild, ...]

    @property
    def content(self) -> str:
        """The text of all its sentences."""
        return "".join(sentence.content for sentence in self.sentences)

    @property
    def span(self) -> Span:
        """Where it lies in its document's text."""
        first, last = self.sentences[0].span, self.sentences[-1].span
        return Span(first.byte_start, last.byte_end, first.char_start, last.char_end)

    @cached_property
    def token_count(self) -> int:
        """The tokens of its text."""
        return len(tokens.encode(self.content))

    def meets(self, other: "Window", *, or_touches: bool) -> bool:
        """Returns whether they share text or, with `or_touches`, have none between them."""
        if self.chunk.document_id != other.chunk.document_id:
            return False
        gap = max(self.span.char_start, other.span.char_start) - min(
            self.span.char_end, other.span.char_end
        )
        return gap < 0 or (or_touches and gap == 0)

    def joined(self, other: "Window") -> "Window":
        """Returns both as one; they share text or touch."""
        first, last = sorted((self, other), key=lambda each: each.span.char_start)
        more = (_behind(sentence, first.span) for sentence in last.sentences)
        of_sentence = {each.span: each for each in sorted(other.matched + self.matched, key=_score)}
        return Window(
            max(self, other, key=lambda each: each.matched[0].score).chunk,
            (*first.sentences, *filter(None, more)),
            tuple(sorted(of_sentence.values(), key=_score, reverse=True)),
        )

    def score(self, aggregation: Aggregation) -> float:
        """Returns the aggregated score of the sentences that matched."""
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
        """Returns the passage, its matched children being the sentences that matched."""
        chunk = replace(
            self.chunk,
            content=self.content,
            span=self.span,
            first_page=self.sentences[0].first_page,
            last_page=self.sentences[-1].last_page,
            token_count=self.token_count,
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
        """Returns as many of its sentences as fit the budget; None if the best one does not.

        The best sentence that matched is among them.
        """
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
    """The part of a sentence behind the span: usually all of it, or None."""
    hidden = max(span.char_end - sentence.span.char_start, 0)
    if hidden == 0:
        return sentence
    if hidden >= len(sentence.content):
        return None
    rest = replace(sentence.span, byte_start=span.byte_end, char_start=span.char_end)
    return replace(sentence, content=sentence.content[hidden:], span=rest)


def candidate_sentences(context: SentenceContext) -> list[int]:
    """Returns the numbers of the leaf's sentences that hold a word."""
    return [n for n in context.leaf_sentences if has_word(context.sentences[n].content)]


def window(context: SentenceContext, number: int, score: float, margin: int) -> Window:
    """Returns sentence `number` of a context with `margin` more on either side."""
    around = context.sentences[max(number - margin, 0) : number + margin + 1]
    best = context.sentences[number].span
    return Window(context.chunk, around, (MatchedChild(context.chunk.chunk_id, score, best),))


class ChosenWindows:
    """The windows that become a query's passages, in order of the best leaf of each.

    Windows of further leaves, best leaf first, are added until the limit or the budget is full.
    What was taken is never taken back: a larger limit or budget gives the same text, and more.
    """

    def __init__(self, query: SearchQuery, limit: int) -> None:
        self._query = query
        self._limit = limit
        self._passed_over = 0
        self._budget = query.token_budget or sys.maxsize
        self._taken: list[Window] = []
        self._left_out = self._is_cut = False

    @property
    def missing(self) -> int:
        """How many windows more the limit and the budget allow."""
        return 0 if self._is_cut else self._limit - len(self._taken) - self._passed_over

    @property
    def left_out(self) -> bool:
        """Whether a window was left out or cut for its score or the budget."""
        return self._left_out or len(self.windows) < len(self._taken)

    @property
    def windows(self) -> list[Window]:
        """Those that reach the query's `min_score`."""
        return [each for each in self._taken if self._reaches(each)]

    def add(self, new: Window) -> None:
        """Takes a window, joined with those that it meets, unless it is poor or does not fit.

        One that meets none is passed over if its document has given as many as it may.
        """
        met = [at for at, each in enumerate(self._taken) if self._joins(each, new)]
        if not self.missing or not (met or self._may_give(new.chunk.document_id)):
            return
        if self._is_poor(new):
            self._pass_over(met)
            return
        whole = reduce(Window.joined, (self._taken[at] for at in met), new)
        others = [each for at, each in enumerate(self._taken) if at not in met]
        left = self._budget - sum(each.token_count for each in others)
        if whole.token_count <= left:
            others.insert(met[0] if met else len(others), whole)
            self._taken = others
            return
        self._pass_over(met)
        if self._query.cut_last:
            part = None if met else new.cut(left)
            self._taken += [part] if part else []
            self._is_cut = True

    def passages(self) -> tuple[Passage, ...]:
        """Returns the windows as passages."""
        return tuple(each.passage(self._query.aggregation) for each in self.windows)

    def _pass_over(self, met: Sequence[int]) -> None:
        """Counts one that is left out as one of the limit, if it would be one of its own."""
        self._left_out = True
        self._passed_over += not met

    def _joins(self, one: Window, other: Window) -> bool:
        return one.meets(other, or_touches=self._query.merge_adjacent)

    def _may_give(self, document_id: str) -> bool:
        """Whether the document may give another window."""
        given = sum(each.chunk.document_id == document_id for each in self._taken)
        return not 0 < self._query.max_per_document <= given

    def _reaches(self, window: Window) -> bool:
        """Whether it has the query's `min_score`."""
        least = self._query.min_score
        return least is None or window.score(self._query.aggregation) >= least

    def _is_poor(self, new: Window) -> bool:
        """Whether its score is too low, and no other window could raise it."""
        grows = self._query.aggregation in (Aggregation.SUM, Aggregation.COUNT)
        return not grows and not self._reaches(new)
