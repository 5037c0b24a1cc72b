"""Two-stage routing: what a search by summaries knows of the sections of a collection.

Summaries are the leaves of a summary collection. For each document, the first leaf summarises the
whole document, and the others summarise its sections. `hrag.engine.common.section_choice` chooses
the sections. Their leaves are the eligible leaves of the second stage.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hrag.engine.common import routed_sections
from hrag.engine.common.labels import Labels, first_labels, split_label
from hrag.engine.common.records import Summarised
from hrag.engine.common.routed_sections import RoutedSection, Sections
from hrag.engine.common.section_choice import Ranked
from hrag.engine.common.sorted_sets import Ordinals
from hrag.engine.find import FindRequest
from hrag.engine.postgres.search.document_reader import PostgresDocuments
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.ranker import Ranker
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.values.search import ChosenSection

_SUMMARISED = """
SELECT ordinal, summarised FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND (ordinal = ANY(%(summaries)b::bigint[]) OR document_id IN (
  SELECT document_id FROM hrag.documents
  WHERE tenant_id = %(tenant_id)s AND collection_id = %(documents)s
  AND ordinal = ANY(%(ordinals)b::bigint[])
))
ORDER BY ordinal
"""


class PostgresEvidence:
    """Ranks the leaves and the summaries of a collection. Implements `SectionEvidence`.

    `leaves` and `summaries` are the eligible leaves of the collection and of its summary
    collection: those of the documents that pass the request's filter.
    """

    def __init__(
        self,
        connection: Connection,
        request: FindRequest,
        leaves: tuple[OpenedCollection, EligibleLeaves],
        summaries: tuple[OpenedCollection, EligibleLeaves],
    ) -> None:
        self._connection = connection
        self._request = request
        self._collection, self._leaves = leaves
        self._summary_collection, self._summaries = summaries

    def leaves(self, ordinals: Ordinals | None = None) -> Ranked:
        """Ranks leaves. Implements `SectionEvidence.leaves`."""
        eligible = self._leaves
        if ordinals is not None:
            eligible = EligibleLeaves.of_documents(self._connection, self._collection, ordinals)
        return self._ranked(self._collection, eligible, self._request.candidates)

    def summaries(self, count: int) -> Ranked:
        """Ranks summaries of sections. Implements `SectionEvidence.summaries`."""
        eligible = replace(self._summaries, sections=True)
        return self._ranked(self._summary_collection, eligible, count)

    def document_summaries(self, summaries: Ordinals) -> Ranked:
        """Scores whole documents' summaries. Implements `SectionEvidence.document_summaries`."""
        eligible = EligibleLeaves.only(first_labels(summaries))
        return self._ranked(self._summary_collection, eligible, max(len(summaries), 1))

    def _ranked(self, collection: OpenedCollection, eligible: EligibleLeaves, count: int) -> Ranked:
        ranker = Ranker(self._connection, collection, self._request, eligible)
        return Ranked.of(ranker.best(count))

    def summarised(self, ordinals: Ordinals, summaries: Ordinals) -> dict[int, Summarised]:
        """Reads what is summarised. Implements `SectionEvidence.summarised`."""
        parameters = {
            **self._summary_collection.key,
            "documents": self._collection.key["collection_id"],
            "ordinals": bigints(ordinals),
            "summaries": bigints(summaries),
        }
        rows = self._connection.execute(_SUMMARISED, parameters, binary=True).fetchall()
        return {ordinal: Summarised.from_bytes(value) for ordinal, value in rows}


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


def leaves_in(sections: Sections) -> Labels:
    """Returns the labels of all leaves in the sections, ascending and without duplicates."""
    counts = sections.leaf_counts.astype(np.int64)
    preceding = np.cumsum(counts) - counts
    leaves = np.arange(counts.sum()) - np.repeat(preceding, counts)
    return np.unique(np.repeat(sections.starts, counts) + leaves.astype(np.uint64))
