"""SENTENCE_WINDOW: returns the best sentence of each leaf, with the sentences around it.

These sentences together are called a window. The algorithm follows LlamaIndex's
SentenceWindowNodeParser. The input of this module is, for each leaf, a SentenceContext (the leaf's
sentences, and some sentences before and after them) and the scores of the leaf's sentences. The
output is passages. Windows of one document that overlap are joined, so no text is returned twice.
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
    """Consecutive sentences of a document that become a passage.

    `matched` are the matched sentences among them, best first. `chunk` is the leaf that contains
    the best matched sentence.
    """

    chunk: Chunk
    sentences: tuple[Sentence, ...]
    matched: tuple[MatchedChild, ...]

    @property
    def content(self) -> str:
        """The text of all sentences of the window."""
        return "".join(sentence.content for sentence in self.sentences)

    @property
    def span(self) -> Span:
        """The position of the window in its document's text."""
        first, last = self.sentences[0].span, self.sentences[-1].span
        return Span(first.byte_start, last.byte_end, first.char_start, last.char_end)

    @cached_property
    def token_count(self) -> int:
        """The count of tokens in the text of the window."""
        return len(tokens.encode(self.content))

    def meets(self, other: "Window", *, or_touches: bool) -> bool:
        """Returns True if both windows share text.

        With `or_touches`, also returns True if one window begins where the other window ends.
        """
        if self.chunk.document_id != other.chunk.document_id:
            return False
        gap = max(self.span.char_start, other.span.char_start) - min(
            self.span.char_end, other.span.char_end
        )
        return gap < 0 or (or_touches and gap == 0)

    def joined(self, other: "Window") -> "Window":
        """Returns both windows joined to one. The windows must share text or touch."""
        first, last = sorted((self, other), key=lambda window: window.span.char_start)
        more = (_part_after(sentence, first.span) for sentence in last.sentences)
        by_score = sorted(other.matched + self.matched, key=_score)
        matches = {match.span: match for match in by_score}
        return Window(
            max(self, other, key=lambda window: window.matched[0].score).chunk,
            (*first.sentences, *filter(None, more)),
            tuple(sorted(matches.values(), key=_score, reverse=True)),
        )

    def score(self, aggregation: Aggregation) -> float:
        """Returns the aggregated score of the window's matched sentences."""
        scores = [match.score for match in self.matched]
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
        """Returns the window as a passage. Its matched children are the matched sentences."""
        chunk = replace(
            self.chunk,
            content=self.content,
            span=self.span,
            first_page=self.sentences[0].first_page,
            last_page=self.sentences[-1].last_page,
            token_count=self.token_count,
            page_starts=self._page_starts(),
            recognised_pages=self._recognised_pages(),
        )
        in_order = sorted(self.matched, key=lambda match: match.span.char_start)
        leaves = tuple(dict.fromkeys(match.chunk_id for match in in_order))
        merged = leaves if len(leaves) > 1 else ()
        return Passage(chunk, self.score(aggregation), self.matched, merged)

    def _page_starts(self) -> tuple[PageStart, ...]:
        """Returns the starts of all pages of the window except its first page."""
        starts = list(self.sentences[0].page_starts)
        for previous, sentence in pairwise(self.sentences):
            if sentence.first_page != previous.last_page:
                starts.append(PageStart(sentence.first_page, sentence.span.char_start))
            starts += sentence.page_starts
        return tuple(starts)

    def _recognised_pages(self) -> tuple[int, ...]:
        """Returns the numbers of the window's pages whose text was recognised, without repeats."""
        numbers = (number for part in self.sentences for number in part.recognised_pages)
        return tuple(dict.fromkeys(numbers))

    def cut(self, token_budget: int) -> "Window | None":
        """Returns the window with as many of its sentences as fit the token budget.

        They include the best matched sentence. Returns None if this sentence alone does not fit.
        """
        sizes = [len(tokens.encode(sentence.content)) for sentence in self.sentences]
        best = self.matched[0].span
        starts = [sentence.span.char_end for sentence in self.sentences]
        kept_range = fitting(sizes, bisect_right(starts, best.char_start), token_budget)
        if kept_range is None:
            return None
        sentences = self.sentences[kept_range.start : kept_range.stop]
        end = sentences[-1].span.char_end
        start = sentences[0].span.char_start
        inside = [match for match in self.matched if start <= match.span.char_start < end]
        return replace(self, sentences=sentences, matched=tuple(inside))


def _score(matched: MatchedChild) -> float:
    return matched.score


def _part_after(sentence: Sentence, span: Span) -> Sentence | None:
    """Returns the part of a sentence after the end of `span`; None if there is no such part."""
    overlap = max(span.char_end - sentence.span.char_start, 0)
    if overlap == 0:
        return sentence
    if overlap >= len(sentence.content):
        return None
    remaining_span = replace(sentence.span, byte_start=span.byte_end, char_start=span.char_end)
    return replace(sentence, content=sentence.content[overlap:], span=remaining_span)


def candidate_sentences(context: SentenceContext) -> list[int]:
    """Returns the indexes, in `context.sentences`, of the leaf's sentences that contain a word."""
    return [i for i in context.leaf_sentences if has_word(context.sentences[i].content)]


def window(context: SentenceContext, index: int, score: float, margin: int) -> Window:
    """Returns a sentence as a window, with up to `margin` more sentences on each side.

    `index` is the index of the sentence in `context.sentences`, `score` is its score.
    """
    sentences = context.sentences[max(index - margin, 0) : index + margin + 1]
    span = context.sentences[index].span
    return Window(context.chunk, sentences, (MatchedChild(context.chunk.chunk_id, score, span),))


class ChosenWindows:
    """The windows that become the passages of a search, in order of their best leaves.

    A window is a matched sentence with the sentences around it. Windows are added in the order of
    their leaves, best leaf first, until the limit of passages or the token budget is reached. A
    chosen window is never removed. So a larger limit or budget returns all text of a smaller one,
    and more.
    """

    def __init__(self, query: SearchQuery, limit: int) -> None:
        self._query = query
        self._limit = limit
        self._skipped = 0
        self._budget = query.token_budget or sys.maxsize
        self._all_windows: list[Window] = []
        self._left_out = self._is_cut = False

    @property
    def missing(self) -> int:
        """How many more windows may be added; 0 after a window was cut to fit the token budget."""
        return 0 if self._is_cut else self._limit - len(self._all_windows) - self._skipped

    @property
    def left_out(self) -> bool:
        """True if a window was left out or cut because of its score or the token budget."""
        return self._left_out or len(self.windows) < len(self._all_windows)

    @property
    def windows(self) -> list[Window]:
        """The chosen windows whose score is at least the query's `min_score`."""
        return [window for window in self._all_windows if self._reaches_min_score(window)]

    def add(self, new: Window) -> None:
        """Adds a window, or joins it with the chosen windows that share text with it.

        With the query's `merge_adjacent`, also joins it with the chosen windows that it touches.
        Skips the window in these cases:

        * Its score is too low.
        * It is not joined, and its document already has `max_per_document` chosen windows.
        * It does not fit the token budget. Exception: with `cut_last`, a window that is not joined
          is cut to the sentences that fit.
        """
        met_indexes = [
            index for index, window in enumerate(self._all_windows) if self._must_join(window, new)
        ]
        if not self.missing or not (met_indexes or self._may_add_window_of(new.chunk.document_id)):
            return
        if self._scores_too_low(new):
            self._skip(met_indexes)
            return
        whole = reduce(Window.joined, (self._all_windows[index] for index in met_indexes), new)
        others = [
            window for index, window in enumerate(self._all_windows) if index not in met_indexes
        ]
        left_tokens = self._budget - sum(window.token_count for window in others)
        if whole.token_count <= left_tokens:
            others.insert(met_indexes[0] if met_indexes else len(others), whole)
            self._all_windows = others
            return
        self._skip(met_indexes)
        if self._query.cut_last:
            part = None if met_indexes else new.cut(left_tokens)
            self._all_windows += [part] if part else []
            self._is_cut = True

    def passages(self) -> tuple[Passage, ...]:
        """Returns the windows as passages."""
        return tuple(window.passage(self._query.aggregation) for window in self.windows)

    def _skip(self, met_indexes: Sequence[int]) -> None:
        """Records that a window is left out.

        `met_indexes` are the indexes of the chosen windows with which the window would have been
        joined. If `met_indexes` is empty, the window would have become a separate passage. In this
        case the window counts towards the limit of passages, although it is left out.
        """
        self._left_out = True
        self._skipped += not met_indexes

    def _must_join(self, window: Window, other: Window) -> bool:
        """Returns True if the two windows share text and must therefore become one passage.

        If the query has `merge_adjacent`, also returns True if one window begins where the other
        ends.
        """
        return window.meets(other, or_touches=self._query.merge_adjacent)

    def _may_add_window_of(self, document_id: str) -> bool:
        """Returns True if the document has fewer than `max_per_document` chosen windows.

        Always returns True if the query's `max_per_document` is 0, which means no limit.
        """
        count = sum(window.chunk.document_id == document_id for window in self._all_windows)
        return not 0 < self._query.max_per_document <= count

    def _reaches_min_score(self, window: Window) -> bool:
        """Returns True if the window's score is at least the query's `min_score`."""
        min_score = self._query.min_score
        return min_score is None or window.score(self._query.aggregation) >= min_score

    def _scores_too_low(self, new: Window) -> bool:
        """Returns True if the window's score is below `min_score` and joining cannot raise it."""
        can_grow = self._query.aggregation in (Aggregation.SUM, Aggregation.COUNT)
        return not can_grow and not self._reaches_min_score(new)
