"""Converts the sections that two-stage routing has chosen into the values that clients receive.

Two-stage routing first ranks sections. The search then considers only the leaves of the best
sections.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.fetch import DocumentReader
from hrag.engine.common.labels import Labels, split_label
from hrag.engine.find import FindRequest
from hrag.values.search import ChosenSection

# The response of a search lists at most this many of the sections that routing has chosen. It is
# also the highest count of passages that a search returns.
_MAX_SHOWN_SECTIONS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Sections:
    """Sections of summarised documents, in arrays with one element for each section.

    `starts` are the labels of the sections' first leaves, and `ends` are the labels after their
    last leaves: `uint64[n]`. `summaries` are the labels of their summaries in the summary
    collection: `uint64[n]`. `scores` are their scores: `float64[n]`.
    """

    starts: Labels
    ends: Labels
    summaries: Labels
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> "Iterator[RoutedSection]":
        columns = (self.starts, self.leaf_counts, self.summaries, self.scores)
        for start, count, summary, score in zip(*(x.tolist() for x in columns), strict=True):
            ordinal, first = split_label(start)
            yield RoutedSection(ordinal, range(first, first + count), summary, score)

    @property
    def leaf_counts(self) -> NDArray[np.uint64]:
        """The count of leaves in each section: `uint64[n]`."""
        return self.ends - self.starts

    def at(self, positions: Any) -> "Sections":
        """Returns the sections at these positions: an array of indexes, or a slice."""
        columns = (self.starts, self.ends, self.summaries, self.scores)
        return Sections(*(column[positions] for column in columns))

    def shown(self, request: FindRequest) -> "list[RoutedSection]":
        """Returns the first sections, as many as the response lists.

        These are all that the request names a number of, or as many as the passages that it wants.
        """
        count = request.top_sections or request.limit
        return list(self.at(slice(min(count, _MAX_SHOWN_SECTIONS))))


@dataclass(frozen=True, slots=True)
class RoutedSection:
    """A section whose leaves are searched.

    `ordinal` is the ordinal of the section's document. `leaves` is the range of the indexes of the
    leaves in the section. `summary` is the label of the section's summary in the summary
    collection, and `score` is the score of the section.
    """

    ordinal: int
    leaves: range
    summary: int
    score: float


def chosen_sections(
    routed: Sequence[RoutedSection],
    summaries: DocumentReader,
    documents: DocumentReader,
    leaf_level: int,
) -> tuple[ChosenSection, ...]:
    """Converts the sections that routing has chosen into values for clients, in the same order.

    `summaries` reads the documents of the summary collection, and `documents` reads the documents
    that they summarise. `leaf_level` is the level of the summarised documents' leaves.
    """
    sections = []
    for section in routed:
        ordinal, summary_leaf = split_label(section.summary)
        summary_document = summaries.tree_text(ordinal)
        summary_record = summary_document.tree.record(0, summary_leaf)
        summary = summary_document.content(summary_record).strip()
        document = documents.tree_text(section.ordinal)
        sections.append(document.chosen_section(leaf_level, section.leaves, summary, section.score))
    return tuple(sections)
