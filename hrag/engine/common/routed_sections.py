"""The sections that two-stage routing has chosen by their summaries.

Converts them into the values that clients receive.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hrag.engine.common.fetch import DocumentReader
from hrag.engine.common.labels import split_label
from hrag.values.search import ChosenSection


@dataclass(frozen=True, slots=True)
class RoutedSection:
    """The leaves that a matching summary summarises.

    `ordinal` is their document, `summary` the label of the summary, and `score` its score.
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
    """Returns routed sections as values for clients, in the same order.

    `summaries` reads the documents of the summary collection.
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
