"""Two-stage routing: chooses the sections in which a search by summaries looks for leaves.

A section is judged by three things: the best leaf in it, its summary, and its document. A document
is judged by its best leaves and by the summary of the whole document, which is indexed with the
title and the name of the file. Both are ranked by the same sources as leaves. So among documents
that are alike, the one that the query names comes first.

docs/decisions/summaries.md has the measurements behind the weights.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from hrag.engine.common.candidates import ScoredRows, Scores
from hrag.engine.common.labels import Labels, ordinals_of, split_label
from hrag.engine.common.records import Summarised
from hrag.engine.common.routed_sections import RoutedSection
from hrag.engine.common.sorted_sets import Ordinals
from hrag.engine.find import FindRequest
from hrag.values.search import SummaryScope

# A document's score is the mean of its best leaves, plus this share of its summary's score.
_BEST_LEAVES = 3
_DOCUMENT_SUMMARY_WEIGHT = 0.25
# A section's score is that of its best leaf, plus these shares of the two other scores. The same
# share of the document's score is added to the score of each leaf of the document.
_DOCUMENT_WEIGHT = 0.25
_SUMMARY_WEIGHT = 0.1
# The leaves of this many documents, those with the best leaves, are ranked once more by themselves.
# Where documents are alike, leaves of others displace most leaves of the right one.
_RANKED_DOCUMENTS = 10
# If the request does not say how many sections to choose, those with at least this share of the
# best score are chosen, and documents likewise.
_LEAST_SHARE = 0.75
# They have at most this share of the collection's leaves together, or are a single section.
_MAX_ELIGIBLE_SHARE = 0.3


class Ranked(NamedTuple):
    """Ranked leaves or summaries: their labels, their scores, and their lexical scores, if any."""

    labels: Labels
    scores: Scores
    lexical: Scores | None

    @classmethod
    def of(cls, rows: ScoredRows) -> "Ranked":
        """Returns the labels and scores of `rows`."""
        return cls(rows.labels, rows.scores, rows.lexical)


class SectionEvidence(Protocol):
    """Reads what an engine knows about the sections of a collection, for one request.

    Only documents that pass the request's filter are included.
    """

    def leaves(self, ordinals: Ordinals | None = None) -> Ranked:
        """Ranks the leaves of all documents, or of the documents with these ordinals."""

    def summaries(self, count: int) -> Ranked:
        """Ranks the summaries of sections; each source returns at most `count`."""

    def document_summaries(self, summaries: Ordinals) -> Ranked:
        """Scores the summaries of whole documents; `summaries` are their summary documents."""

    def summarised(self, ordinals: Ordinals, summaries: Ordinals) -> Mapping[int, Summarised]:
        """Returns what is summarised, by the ordinal of the summary document.

        `ordinals` are those of documents, `summaries` those of summary documents. Documents without
        summaries are left out.
        """


@dataclass(frozen=True, slots=True)
class SectionChoice:
    """The chosen sections, best first, and the scores of all documents, by ordinal."""

    sections: tuple[RoutedSection, ...]
    document_scores: Mapping[int, float]

    def with_document_scores(self, scored: ScoredRows) -> ScoredRows:
        """Returns `scored` with a share of the document's score added to each leaf's score."""
        ordinals, positions = np.unique(ordinals_of(scored.labels), return_inverse=True)
        scores = [self.document_scores.get(ordinal, 0.0) for ordinal in ordinals.tolist()]
        bonus = np.array(scores, np.float32)[positions] * np.float32(_DOCUMENT_WEIGHT)
        return replace(scored, scores=scored.scores + bonus)


def choose_sections(
    request: FindRequest, evidence: SectionEvidence, leaf_count: int
) -> SectionChoice:
    """Chooses the sections whose leaves are eligible; `leaf_count` is that of the collection.

    `request.top_sections` sections are chosen, or fewer if there are fewer. If it is 0, their
    scores decide how many. With SummaryScope.DOCUMENTS, documents are chosen first, by the same
    rule, and then the best of their sections.
    """
    leaves = _leaf_scores(evidence)
    ranked = evidence.summaries(max(request.candidates, request.top_sections))
    summaries = np.unique(ordinals_of(ranked.labels))
    ordinals = np.array(sorted(leaves), np.uint64)
    summarised = evidence.summarised(ordinals, summaries)
    documents = _document_scores(evidence, summarised, leaves)
    chosen = set(documents)
    if request.summary_scope is SummaryScope.DOCUMENTS:
        chosen = set(_best_documents(request, documents))
    scores = dict(zip(ranked.labels.tolist(), ranked.scores.tolist(), strict=True))
    sections = [
        RoutedSection(
            document.ordinal,
            section,
            label := (summary << 20 | number),
            best
            + _DOCUMENT_WEIGHT * documents[document.ordinal]
            + _SUMMARY_WEIGHT * scores.get(label, 0.0),
        )
        for summary, document in summarised.items()
        if document.ordinal in chosen
        for number, (section, best) in enumerate(
            zip(
                document.sections,
                _best_leaves(leaves.get(document.ordinal, {}), document.sections),
                strict=True,
            ),
            1,
        )
    ]
    sections.sort(key=lambda section: (-section.score, section.summary))
    return SectionChoice(tuple(_best_sections(request, sections, leaf_count)), documents)


def _leaf_scores(evidence: SectionEvidence) -> dict[int, dict[int, float]]:
    """Returns the scores of the best leaves, by the document's ordinal and the leaf's index."""
    leaves: defaultdict[int, dict[int, float]] = defaultdict(dict)
    first = evidence.leaves()
    _add(leaves, first)
    best = sorted(leaves, key=lambda ordinal: (-max(leaves[ordinal].values()), ordinal))
    if len(best) > 1:
        near = np.array(sorted(best[:_RANKED_DOCUMENTS]), np.uint64)
        _add(leaves, evidence.leaves(near))
    return leaves


def _add(leaves: defaultdict[int, dict[int, float]], ranked: Ranked) -> None:
    for label, score in zip(ranked.labels.tolist(), ranked.scores.tolist(), strict=True):
        ordinal, index = split_label(label)
        leaves[ordinal][index] = max(score, leaves[ordinal].get(index, score))


def _document_scores(
    evidence: SectionEvidence,
    summarised: Mapping[int, Summarised],
    leaves: Mapping[int, Mapping[int, float]],
) -> dict[int, float]:
    ranked = evidence.document_summaries(np.array(sorted(summarised), np.uint64))
    values = ranked.scores if ranked.lexical is None else ranked.lexical
    by_summary = dict(zip(ordinals_of(ranked.labels).tolist(), values.tolist(), strict=True))
    scores = {}
    for summary, document in summarised.items():
        best = sorted(leaves.get(document.ordinal, {}).values(), reverse=True)[:_BEST_LEAVES]
        last = document.sections[-1].stop if document.sections else _BEST_LEAVES
        mean = sum(best) / min(_BEST_LEAVES, last)
        scores[document.ordinal] = mean + _DOCUMENT_SUMMARY_WEIGHT * by_summary.get(summary, 0.0)
    return scores


def _best_documents(request: FindRequest, scores: Mapping[int, float]) -> Iterable[int]:
    best = sorted(scores, key=lambda ordinal: (-scores[ordinal], ordinal))
    if request.top_sections:
        return best[: request.top_sections]
    return [ordinal for ordinal in best if scores[ordinal] >= _LEAST_SHARE * scores[best[0]]]


def _best_leaves(scores: Mapping[int, float], sections: Sequence[range]) -> list[float]:
    """Returns the score of the best leaf in each section; 0 if no leaf of it was ranked."""
    starts = [section.start for section in sections]
    best: dict[int, float] = {}
    for index, score in scores.items():
        number = bisect_right(starts, index) - 1
        if number >= 0 and index in sections[number]:
            best[number] = max(score, best.get(number, score))
    return [best.get(number, 0.0) for number in range(len(sections))]


def _best_sections(
    request: FindRequest, sections: Sequence[RoutedSection], leaf_count: int
) -> Iterable[RoutedSection]:
    """Returns the sections to search; `sections` are all, best first."""
    if request.top_sections:
        return sections[: request.top_sections]
    chosen: list[RoutedSection] = []
    leaves = 0
    for section in sections:
        leaves += len(section.leaves)
        too_many = leaves > _MAX_ELIGIBLE_SHARE * leaf_count
        if chosen and (too_many or section.score < _LEAST_SHARE * chosen[0].score):
            break
        chosen.append(section)
    return chosen


def with_documents(
    best: Callable[[int], ScoredRows], choice: SectionChoice | None
) -> Callable[[int], ScoredRows]:
    """Returns a ranking like `best`, in which leaves of better documents score higher.

    Returns `best` if there is no choice of sections.
    """
    if choice is None:
        return best
    return lambda count: choice.with_document_scores(best(count))
