"""Sections that two-stage routing has chosen by their summaries, and how clients see them."""

from collections.abc import Sequence
from dataclasses import dataclass

from hrag.engine.common.fetch import DocumentReader
from hrag.engine.common.labels import split_label
from hrag.values.search import ChosenSection


@dataclass(frozen=True, slots=True)
class RoutedSection:
    """Leaves of a document that were chosen for a summary, by its label and score."""

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
    """Returns routed sections as values; `summaries` reads the collection of summaries."""
    found = []
    for each in routed:
        ordinal, leaf = split_label(each.summary)
        text = summaries.tree_text(ordinal)
        summary = text.content(text.tree.record(0, leaf)).strip()
        document = documents.tree_text(each.ordinal)
        found.append(document.chosen_section(leaf_level, each.leaves, summary, each.score))
    return tuple(found)
