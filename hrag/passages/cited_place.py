"""Where in a passage the query's terms are, and which of its sentences to cite."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.analysis import Analyzer
from hrag.passages.matched_sentence import matched_sentence
from hrag.passages.tree_text import LeafMatch, TreeText
from hrag.tree import ChunkRecord
from hrag.types import MatchedSentence, TermSpan


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

    `ids` are `uint64[q]`, ascending, and `weights` say how much each counts for a sentence.
    Without an analyzer there are none.
    """

    def __init__(
        self, analyzer: Analyzer | None, ids: NDArray[np.uint64], weights: NDArray[np.float32]
    ) -> None:
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

        With `spans`, those of terms in all of the leaves, as far as they are in the passage.
        """
        best, *others = (document.tree.record(level, each.leaf) for each in leaves)
        starts, ends, which = self._matches(document, best)
        sentence = matched_sentence(document, best, starts, ends, self._weights, which)
        found = []
        if spans and len(self._ids):
            found = [(starts, ends), *(self._matches(document, each)[:2] for each in others)]
        return CitedPlace(
            sentence,
            document.outline.section_at(sentence.span.char_start),
            _merged(found, passage),
        )

    def _matches(
        self, document: TreeText, leaf: ChunkRecord
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
        """Where terms occur in a leaf, in the document's characters, and which they are."""
        if self._analyzer is None or not len(self._ids):
            none = np.empty(0, np.int64)
            return none, none, np.empty(0, np.uint32)
        found = self._analyzer.matches(document.content(leaf), self._ids)
        offset = leaf.char_start
        starts, ends = found.starts.astype(np.int64), found.ends.astype(np.int64)
        return starts + offset, ends + offset, found.which


def _merged(
    found: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], passage: ChunkRecord
) -> tuple[TermSpan, ...]:
    """The spans inside the passage, in order; those that overlap are one."""
    merged: list[TermSpan] = []
    spans = {
        span
        for starts, ends in found
        for span in zip(starts.tolist(), ends.tolist(), strict=True)
        if passage.char_start <= span[0] and span[1] <= passage.char_end
    }
    for start, end in sorted(spans):
        if merged and start < merged[-1].char_end:
            last = merged.pop()
            merged.append(TermSpan(last.char_start, max(last.char_end, end)))
        else:
            merged.append(TermSpan(start, end))
    return tuple(merged)
