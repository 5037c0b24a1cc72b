"""Two-stage routing: chooses the sections in which a search by summaries looks for leaves.

Summaries are the leaves of a summary collection. For each document, the first leaf summarises the
whole document, and the others summarise its sections. The first stage searches the summaries with
the same sources as the search itself. The leaves of the sections with the best summaries are then
the eligible leaves of the second stage.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hrag.engine.common import routed_sections
from hrag.engine.common.candidates import Scores
from hrag.engine.common.labels import Labels, labels_of, ordinals_of, split_label
from hrag.engine.common.records import Summarised
from hrag.engine.common.routed_sections import RoutedSection
from hrag.engine.find import FindRequest
from hrag.engine.postgres.search.document_reader import PostgresDocuments
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.ranker import Ranker
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.values.search import ChosenSection, SummaryScope

_SUMMARISED = """
SELECT ordinal, summarised FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal = ANY(%(ordinals)s)
"""


def route(
    connection: Connection,
    summaries: OpenedCollection,
    request: FindRequest,
    eligible: EligibleLeaves,
) -> list[RoutedSection]:
    """Returns at most `request.top_sections` sections, best first.

    `eligible` are the summaries of documents that pass the request's filter. With
    SummaryScope.DOCUMENTS, at most `top_sections` documents are chosen first, and only their
    sections are ranked. Each source is asked for at least `request.candidates` leaves, even if
    fewer sections are requested, because the section with the best fused score need not be the best
    section of a single source.
    """
    count = request.top_sections
    candidates = max(request.candidates, count)
    if request.summary_scope is SummaryScope.DOCUMENTS:
        first = replace(eligible, whole_documents=True)
        labels, _ = _best(Ranker(connection, summaries, request, first), candidates, count)
        ordinals = np.sort(ordinals_of(labels))
        eligible = replace(eligible, ordinals=ordinals)
    sections = replace(eligible, sections=True)
    best = _best(Ranker(connection, summaries, request, sections), candidates, count)
    return _sections_of(connection, summaries, *best)


def _best(ranker: Ranker, candidates: int, count: int) -> tuple[Labels, Scores]:
    """Returns the labels and the scores of the `count` best leaves, best first.

    Each source returns at most `candidates` leaves. In a hybrid search, their scores are fused.
    """
    ranked = ranker.best(candidates)
    order = ranked.best_first()[:count]
    return ranked.labels[order], ranked.scores[order]


def _sections_of(
    connection: Connection, summaries: OpenedCollection, labels: Labels, scores: Scores
) -> list[RoutedSection]:
    ordinals = np.unique(ordinals_of(labels)).tolist()
    parameters = {**summaries.key, "ordinals": ordinals}
    rows = connection.execute(_SUMMARISED, parameters, binary=True).fetchall()
    summarised = {ordinal: Summarised.from_bytes(value) for ordinal, value in rows}
    routed = []
    for summary, score in zip(labels.tolist(), scores.tolist(), strict=True):
        ordinal, leaf = split_label(summary)
        document = summarised[ordinal]
        routed.append(RoutedSection(document.ordinal, document.sections[leaf - 1], summary, score))
    return routed


def chosen_sections(
    routed: Sequence[RoutedSection],
    summaries: PostgresDocuments,
    documents: PostgresDocuments,
    leaf_level: int,
) -> tuple[ChosenSection, ...]:
    """Returns the sections that `route` chose, in the form in which the response lists them.

    `hrag.engine.common.routed_sections.chosen_sections` creates the result. Before it is called,
    all documents that it needs are announced, so that one statement can read several of them.
    """
    summaries.expect(split_label(section.summary)[0] for section in routed)
    documents.expect(section.ordinal for section in routed)
    return routed_sections.chosen_sections(routed, summaries, documents, leaf_level)


def leaves_in(routed: Sequence[RoutedSection]) -> Labels:
    """Returns the labels of all leaves in the sections, ascending and without duplicates."""
    parts = [
        labels_of(section.ordinal, section.leaves.stop)[section.leaves.start :]
        for section in routed
    ]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
