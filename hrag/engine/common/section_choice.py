"""Two-stage routing: chooses the sections in which a search by summaries looks for leaves.

A section is judged by three things: the best leaf in it, its summary, and its document. A document
is judged by its best leaves and by the summary of the whole document, which is indexed with the
title and the name of the file. Both are ranked by the same sources as leaves. So among documents
that are alike, the one that the query names comes first.

docs/decisions/summaries.md has the measurements behind the weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.candidates import ScoredRows, Scores
from hrag.engine.common.labels import Labels, first_labels, ordinals_of
from hrag.engine.common.records import Summarised
from hrag.engine.common.routed_sections import Sections
from hrag.engine.common.sorted_sets import Ordinals
from hrag.engine.find import FindRequest
from hrag.values.search import FusionMethod, SummaryScope

Values = NDArray[np.float64]

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


@dataclass(frozen=True, slots=True, eq=False)
class SectionChoice:
    """The chosen sections, best first, and the scores of all documents.

    `documents` are the ordinals of the documents, ascending: `uint64[n]`. `document_scores` has the
    score of each of them: `float64[n]`.
    """

    sections: Sections
    documents: Ordinals
    document_scores: Values

    def with_document_scores(self, scored: ScoredRows) -> ScoredRows:
        """Returns `scored` with a share of the document's score added to each leaf's score."""
        scores = _values_at(ordinals_of(scored.labels), self.documents, self.document_scores)
        bonus = scores.astype(np.float32) * np.float32(_DOCUMENT_WEIGHT)
        return replace(scored, scores=scored.scores + bonus)


def choose_sections(
    request: FindRequest, evidence: SectionEvidence, leaf_count: int
) -> SectionChoice:
    """Chooses the sections whose leaves are eligible; `leaf_count` is that of the collection.

    `request.top_sections` sections are chosen, or fewer if there are fewer. If it is 0, their
    scores decide how many. With SummaryScope.DOCUMENTS, documents are chosen first, by the same
    rule, and then the best of their sections.
    """
    leaves, scores = _ranked_leaves(evidence)
    ranked = evidence.summaries(max(request.candidates, request.top_sections))
    summarised = evidence.summarised(
        np.unique(ordinals_of(leaves)), np.unique(ordinals_of(ranked.labels))
    )
    by_document = sorted(summarised.items(), key=lambda item: item[1].ordinal)
    summaries = np.array([summary for summary, _ in by_document], np.uint64)
    documents = np.array([document.ordinal for _, document in by_document], np.uint64)
    bounds = [document.bounds for _, document in by_document]

    document_scores = _mean_of_best(leaves, scores, documents, bounds)
    document_scores += _DOCUMENT_SUMMARY_WEIGHT * _summary_scores(request, evidence, summaries)
    sections, owners = _all_sections(documents, summaries, bounds)
    section_scores = (
        _best_leaves(leaves, scores, sections)
        + _DOCUMENT_WEIGHT * document_scores[owners]
        + _SUMMARY_WEIGHT * _values_at(sections.summaries, ranked.labels, ranked.scores)
    )
    sections = replace(sections, scores=section_scores)
    if request.summary_scope is SummaryScope.DOCUMENTS:
        chosen = _best_documents(request, document_scores)
        sections = sections.at(np.flatnonzero(np.isin(owners, chosen)))
    best = sections.at(np.lexsort((sections.summaries, -sections.scores)))
    count = _section_count(request, best, leaf_count)
    return SectionChoice(best.at(slice(count)), documents, document_scores)


def _ranked_leaves(evidence: SectionEvidence) -> tuple[Labels, Values]:
    """Returns the labels of the best leaves, ascending, and their scores."""
    first = evidence.leaves()
    documents, best = _best_by_key(ordinals_of(first.labels), first.scores)
    if len(documents) < 2:
        return _best_by_key(first.labels, first.scores)
    near = documents[np.argsort(-best, kind="stable")[:_RANKED_DOCUMENTS]]
    second = evidence.leaves(np.sort(near))
    return _best_by_key(
        np.concatenate([first.labels, second.labels]),
        np.concatenate([first.scores, second.scores]),
    )


def _best_by_key(keys: Labels, scores: Scores) -> tuple[Labels, Values]:
    """Returns the keys without duplicates, ascending, and the highest score of each."""
    distinct, positions = np.unique(keys, return_inverse=True)
    best = np.full(len(distinct), -np.inf)
    np.maximum.at(best, positions, scores)
    return distinct, best


def _values_at(wanted: Labels, keys: Labels, values: NDArray[np.floating[Any]]) -> Values:
    """Returns the value of each of the wanted keys; 0 for those that are not in `keys`."""
    result = np.zeros(len(wanted))
    if len(keys):
        order = np.argsort(keys)
        positions = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        found = keys[positions] == wanted
        result[found] = values[positions[found]]
    return result


def _mean_of_best(
    leaves: Labels, scores: Values, documents: Ordinals, bounds: list[NDArray[np.uint32]]
) -> Values:
    """Returns the mean score of the best leaves of each document.

    A leaf that was not ranked counts as 0. A document with fewer leaves has the mean of these.
    """
    order = np.lexsort((-scores, ordinals_of(leaves)))
    ordinals = ordinals_of(leaves)[order]
    ranks = np.arange(len(ordinals)) - np.searchsorted(ordinals, ordinals)
    counted = (ranks < _BEST_LEAVES) & np.isin(ordinals, documents)
    positions = np.searchsorted(documents, ordinals[counted])
    sums = np.bincount(positions, scores[order][counted], len(documents))
    ends = [int(sections[-1, 1]) if len(sections) else _BEST_LEAVES for sections in bounds]
    return sums / np.minimum(np.array(ends, np.float64), _BEST_LEAVES)


def _summary_scores(request: FindRequest, evidence: SectionEvidence, summaries: Ordinals) -> Values:
    """Returns the score of the whole document's summary for each of the summary documents.

    This is the lexical score, because names are words. Reciprocal ranks of leaves are much smaller
    than lexical scores, so with them, the summaries' reciprocal ranks are returned.
    """
    ranked = evidence.document_summaries(np.sort(summaries))
    by_rank = request.fusion.method is FusionMethod.RECIPROCAL_RANK
    scores = ranked.scores if ranked.lexical is None or by_rank else ranked.lexical
    return _values_at(summaries, ordinals_of(ranked.labels), scores)


def _all_sections(
    documents: Ordinals, summaries: Ordinals, bounds: list[NDArray[np.uint32]]
) -> tuple[Sections, NDArray[np.intp]]:
    """Returns the sections of all documents, with score 0, and the position of each's document."""
    counts = [len(sections) for sections in bounds]
    owners = np.repeat(np.arange(len(counts)), counts)
    leaves = np.concatenate([np.empty((0, 2), np.uint32), *bounds]).astype(np.uint64)
    # Leaf 0 of a summary document is the summary of the whole document.
    numbers = [np.arange(1, count + 1, dtype=np.uint64) for count in counts]
    sections = Sections(
        starts=first_labels(documents)[owners] + leaves[:, 0],
        ends=first_labels(documents)[owners] + leaves[:, 1],
        summaries=first_labels(summaries)[owners]
        + np.concatenate([np.empty(0, np.uint64), *numbers]),
        scores=np.zeros(len(owners)),
    )
    return sections, owners


def _best_leaves(leaves: Labels, scores: Values, sections: Sections) -> Values:
    """Returns the score of the best leaf in each section; 0 if no leaf of it was ranked.

    The sections are in ascending order of their leaves.
    """
    best = np.full(len(sections), -np.inf)
    positions = np.searchsorted(sections.starts, leaves, side="right") - 1
    inside = positions >= 0
    inside[inside] = leaves[inside] < sections.ends[positions[inside]]
    np.maximum.at(best, positions[inside], scores[inside])
    return np.where(np.isneginf(best), 0.0, best)


def _best_documents(request: FindRequest, scores: Values) -> NDArray[np.intp]:
    """Returns the positions of the documents whose sections may be chosen, best first."""
    best = np.argsort(-scores, kind="stable")
    return best[: request.top_sections or _near_the_best(scores[best])]


def _near_the_best(scores: Values) -> int:
    """Returns how many scores are close to the best; `scores` are descending.

    The best is always one of them, even if it is negative.
    """
    return max(int(np.count_nonzero(scores >= _LEAST_SHARE * scores[:1])), min(len(scores), 1))


def _section_count(request: FindRequest, sections: Sections, leaf_count: int) -> int:
    """Returns how many sections to search; `sections` are all, best first."""
    if request.top_sections:
        return request.top_sections
    leaves = np.cumsum(sections.leaf_counts)
    few_enough = np.searchsorted(leaves, _MAX_ELIGIBLE_SHARE * leaf_count, side="right")
    return max(min(int(few_enough), _near_the_best(sections.scores)), 1)


def with_documents(
    best: Callable[[int], ScoredRows], choice: SectionChoice | None
) -> Callable[[int], ScoredRows]:
    """Returns a ranking like `best`, in which leaves of better documents score higher.

    Returns `best` if there is no choice of sections.
    """
    if choice is None:
        return best
    return lambda count: choice.with_document_scores(best(count))
