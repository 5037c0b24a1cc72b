"""Converts the sections that two-stage routing has chosen into the values that clients receive.

Two-stage routing first ranks sections by their leaves, their summaries and their documents. The
search then considers only the leaves of the best sections.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hrag.engine.common.fetch import DocumentReader
from hrag.engine.common.labels import split_label
from hrag.values.search import ChosenSection


@dataclass(frozen=True, slots=True)
class RoutedSection:
    """A section that was chosen, so that its leaves are searched.

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
