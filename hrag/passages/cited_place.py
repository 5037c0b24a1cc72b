"""Finds the sentence to cite in a passage, and the positions of the query's terms in the passage.

A leaf may lie in several sections and on several pages, and a passage nearly always does. The
section that contains most of a passage is often not the section that answers the query. So a
citation names the section and the pages of one sentence. This sentence is the one in the passage's
best leaf that matches the query best.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from hrag.passages.tree_text import LeafMatch, TreeText
from hrag.text.analysis import Analyzer
from hrag.values.tree import ChunkRecord
from hrag_fast import MAX_SENTENCE_CHARS, Matches, TermMatcher, matched_sentence, merged_spans

# This many bytes are read on each side of a leaf to find whole sentences. The longest sentence fits
# into them, because UTF-8 needs at most 4 bytes per character.
_CONTEXT_BYTES = 4 * MAX_SENTENCE_CHARS


class CitedPlace(NamedTuple):
    """The sentence of a passage to cite, and the spans of the query's terms in the passage.

    `sentence` is the sentence's start and end in bytes, then its start and end in code points.
    `term_spans` are in code points. All offsets count from the start of the document's text.
    """

    sentence: tuple[int, int, int, int]
    term_spans: Sequence[tuple[int, int]]


class TermLocator:
    """Finds the terms of a query in the text of leaves.

    `ids` are the ids of the terms, `uint64[q]`, ascending. `weights` are `float32[q]` and say how
    much each term counts in the choice of a sentence. The attribute `matcher` finds the terms in
    a text. It is None if there is no analyzer, or if `ids` is empty.
    """

    def __init__(self, analyzer: Analyzer | None, ids: NDArray[Any], weights: NDArray[Any]) -> None:
        self.matcher: TermMatcher | None = None
        if analyzer and len(ids):
            self.matcher = analyzer.matcher(ids, weights)
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
        """Returns the sentence to cite in a passage, and the spans of the query's terms.

        `leaves` are the matched leaves of the passage, best first. In `document.tree`, leaves are
        the chunks at `level`. A leaf may lie partly or completely outside of the passage, but at
        least one leaf overlaps it. With `spans`, `term_spans` has the spans of the terms in all
        these leaves, as far as the spans lie in the passage. Without `spans`, `term_spans` is
        empty.
        """
        records = (document.tree.record(level, match.leaf) for match in leaves)
        inside = filter(None, (record.within(passage) for record in records))
        best = next(inside)
        if self.matcher is None:
            return CitedPlace(_sentence(document, best), ())
        find = self.matcher.matches
        terms = find(document.content(best))
        sentence = _sentence(document, best, terms, self._weights)
        if not spans:
            return CitedPlace(sentence, ())
        parts = [(best.char_start, terms)]
        parts += ((record.char_start, find(document.content(record))) for record in inside)
        return CitedPlace(sentence, merged_spans(parts, passage.char_start, passage.char_end))


def _sentence(
    document: TreeText,
    leaf: ChunkRecord,
    terms: Matches | None = None,
    weights: NDArray[Any] | None = None,
) -> tuple[int, int, int, int]:
    outline = document.outline
    document.part(max(leaf.byte_start - _CONTEXT_BYTES, 0), leaf.byte_end + _CONTEXT_BYTES)
    return matched_sentence(
        document.text, leaf, outline.section_starts, outline.heading_end, terms, weights
    )
