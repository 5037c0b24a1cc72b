"""Where in a passage the query's terms are, and which of its sentences to cite."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hrag.analysis import Analyzer
from hrag.passages.matched_sentence import TermMatches, matched_sentence
from hrag.passages.tree_text import LeafMatch, TreeText
from hrag.tree import ChunkRecord
from hrag.types import MatchedSentence, TermSpan

_NO_MATCHES = TermMatches(*(array("I") for _ in range(4)))


@dataclass(frozen=True, slots=True)
class CitedPlace:
    """The sentence of a passage to cite, and the spans of the query's terms in it.

    `section` is the index of the sentence's section in the document, or NONE.
    """

    sentence: MatchedSentence
    section: int
    term_spans: tuple[TermSpan, ...]


class TermLocator:
    """Finds terms in the text of leaves.

    `ids` are `uint64[q]`, ascending, and `weights`, `float32[q]`, say how much each counts for
    a sentence.
    Without an analyzer there are none.
    """

    def __init__(self, analyzer: Analyzer | None, ids: NDArray[Any], weights: NDArray[Any]) -> None:
        self._analyzer = analyzer
        self._ids = ids
        self._weights = weights

    def cited_place(
        self,
        document: TreeText,
        level: int,
        leaves: Sequence[LeafMatch],
        passage: ChunkRecord,
        *,
        spans: bool,
    ) -> CitedPlace:
        """Returns the place to cite in a passage with these leaves, best first, at `level`.

        At least one of them has a part in the passage. With `spans`, the result has those of
        the terms in all of them.
        """
        records = (document.tree.record(level, each.leaf) for each in leaves)
        inside = filter(None, (each.within(passage) for each in records))
        best = next(inside)
        in_best = self._matches(document, best)
        sentence = matched_sentence(document, best, in_best)
        found = []
        if spans and len(self._ids):
            found = [in_best, *(self._matches(document, each) for each in inside)]
        return CitedPlace(
            sentence,
            document.outline.section_at(sentence.span.char_start),
            _merged(found, passage),
        )

    def _matches(self, document: TreeText, leaf: ChunkRecord) -> TermMatches:
        """Where terms occur in a leaf, in the document's characters."""
        if self._analyzer is None or not len(self._ids):
            return _NO_MATCHES
        starts, ends, which = self._analyzer.matches(document.content(leaf), self._ids)
        weights = self._weights[which]
        return TermMatches(starts + leaf.char_start, ends + leaf.char_start, weights, which)


def _merged(found: Sequence[TermMatches], passage: ChunkRecord) -> tuple[TermSpan, ...]:
    """The spans inside the passage, in order; those that overlap are one."""
    merged: list[TermSpan] = []
    spans = {
        span
        for each in found
        for span in zip(each.char_starts.tolist(), each.char_ends.tolist(), strict=True)
        if passage.char_start <= span[0] and span[1] <= passage.char_end
    }
    for start, end in sorted(spans):
        if merged and start < merged[-1].char_end:
            last = merged.pop()
            merged.append(TermSpan(last.char_start, max(last.char_end, end)))
        else:
            merged.append(TermSpan(start, end))
    return tuple(merged)
