"""Two-stage routing: which sections a search by summaries looks into.

Summaries are leaves of a summary collection: for each document first the summary of the
whole document, then those of its sections. The best summaries are found there by the sources
of the search itself; the leaves of the sections they stand for become its eligible leaves.
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
    """Returns the best sections, best first: `request.top_sections` at most.

    `eligible` are the summaries of documents that pass the request's filter. With
    SummaryScope.DOCUMENTS, as many documents are chosen first, and their sections are ranked.
    Each source ranks as many candidates as in any search: the best may be first in none.
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
    return _routed(connection, summaries, *best)


def _best(ranker: Ranker, candidates: int, count: int) -> tuple[Labels, Scores]:
    """The labels of the `count` best of so many candidates and their scores, best first."""
    found = ranker.best(candidates)
    order = found.best_first()[:count]
    return found.labels[order], found.scores[order]


def _routed(
    connection: Connection, summaries: OpenedCollection, labels: Labels, scores: Scores
) -> list[RoutedSection]:
    ordinals = np.unique(ordinals_of(labels)).tolist()
    parameters = {**summaries.key, "ordinals": ordinals}
    rows = connection.execute(_SUMMARISED, parameters, binary=True).fetchall()
    summarised = {ordinal: Summarised.from_bytes(value) for ordinal, value in rows}
    routed = []
    for summary, score in zip(labels.tolist(), scores.tolist(), strict=True):
        ordinal, leaf = split_label(summary)
        own = summarised[ordinal]
        routed.append(RoutedSection(own.ordinal, own.sections[leaf - 1], summary, score))
    return routed


def chosen_sections(
    routed: Sequence[RoutedSection],
    summaries: PostgresDocuments,
    documents: PostgresDocuments,
    leaf_level: int,
) -> tuple[ChosenSection, ...]:
    """See `hrag.engine.common.routed_sections.chosen_sections`; reads several at once."""
    summaries.expect(split_label(each.summary)[0] for each in routed)
    documents.expect(each.ordinal for each in routed)
    return routed_sections.chosen_sections(routed, summaries, documents, leaf_level)


def leaves_in(routed: Sequence[RoutedSection]) -> Labels:
    """Returns the leaves of the sections, ascending; no two sections share a leaf."""
    parts = [labels_of(each.ordinal, each.leaves.stop)[each.leaves.start :] for each in routed]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
