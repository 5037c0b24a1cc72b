"""The place in a passage to cite, and where in the passage the query's terms are.

A leaf may touch several sections and pages, and a passage nearly always does; the section
that holds most of it is often not the one that answers. So a citation names the section and
pages of one sentence: of the best leaf, the one that matched best.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from hrag.passages.tree_text import LeafMatch, TreeText
from hrag.text.analysis import Analyzer
from hrag.values.tree import ChunkRecord
from hrag_fast import MAX_SENTENCE_CHARS, Matches, matched_sentence, merged_spans

_REACH_BYTES = 4 * MAX_SENTENCE_CHARS  # What is read around a leaf to find its sentences.


class CitedPlace(NamedTuple):
    """The sentence of a passage to cite, and the spans of the query's terms in the passage.

    `sentence` is its start and end in bytes, then in code points; spans are in code points.
    """

    sentence: tuple[int, int, int, int]
    term_spans: Sequence[tuple[int, int]]


class TermLocator:
    """Finds terms in the text of leaves.

    `ids` are `uint64[q]`, ascending, and `weights`, `float32[q]`, say how much each counts for
    a sentence. `find` returns where they occur in a text; it is None without an analyzer or ids.
    """

    def __init__(self, analyzer: Analyzer | None, ids: NDArray[Any], weights: NDArray[Any]) -> None:
        self.find = partial(analyzer.matches, ids=ids) if analyzer and len(ids) else None
        self.weights = weights

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
        if self.find is None:
            return CitedPlace(_sentence(document, best), ())
        terms = self.find(document.content(best))
        sentence = _sentence(document, best, terms, self.weights)
        if not spans:
            return CitedPlace(sentence, ())
        parts = [(best.char_start, terms)]
        parts += ((each.char_start, self.find(document.content(each))) for each in inside)
        return CitedPlace(sentence, merged_spans(parts, passage.char_start, passage.char_end))


def _sentence(
    document: TreeText,
    leaf: ChunkRecord,
    terms: Matches | None = None,
    weights: NDArray[Any] | None = None,
) -> tuple[int, int, int, int]:
    outline = document.outline
    document.part(max(leaf.byte_start - _REACH_BYTES, 0), leaf.byte_end + _REACH_BYTES)
    return matched_sentence(
        document.text, leaf, outline.section_starts, outline.heading_end, terms, weights
    )
