"""A snapshot of a collection for one call: a REPEATABLE READ transaction.

A search has these steps. First, it determines the eligible leaves by the filter, by two-stage
routing and by the required parts of the query. Then it ranks the candidates of each source, fuses
the rankings, and groups leaves by ancestor. If there are enough passages, it fetches them;
otherwise it continues with more candidates. All statements of a call see the same state of the
database.
"""

import time
from dataclasses import replace

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.fetch import Fetch
from hrag.engine.common.labels import split_label
from hrag.engine.common.rounds import Round, Selection
from hrag.engine.common.search import P, Read, search
from hrag.engine.common.snapshot import FetchOf, SearchableSnapshot
from hrag.engine.find import FindRequest, Found
from hrag.engine.postgres.search.best_groups import best_groups, can_find, expected_passages
from hrag.engine.postgres.search.document_reader import PostgresDocuments
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.ranker import Ranker
from hrag.engine.postgres.search.required_terms import with_required
from hrag.engine.postgres.search.summary_router import chosen_sections, leaves_in, route
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.filter_sql import selected
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.engine.postgres.store.queries import is_storable
from hrag.observe.tracing import Stage
from hrag.passages.tree_text import TreeText
from hrag.values.collections import CollectionSettings
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter
from hrag.values.search import ChosenSection, SearchMode

# A result lists at most this many sections, the same as the largest limit of passages.
_MAX_SHOWN_SECTIONS = 100

_LEAF_COUNT = """
SELECT coalesce(sum(leaf_count), 0) FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal = ANY(%(ordinals)b::bigint[])
"""
_ORDINAL = """
SELECT ordinal FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id = %(document)s
"""


class PostgresSnapshot(SearchableSnapshot):
    """A snapshot of one collection, valid until its transaction ends.

    Implements `hrag.engine.EncodingSnapshot`.
    """

    def __init__(
        self,
        connection: Connection,
        collection: OpenedCollection,
        summaries: OpenedCollection | None,
        deadline: Deadline,
    ) -> None:
        """`summaries` is the summary collection, if the snapshot was opened with it."""
        self._connection = connection
        self._collection = collection
        self._summaries = summaries
        self._deadline = deadline
        self._documents = PostgresDocuments(connection, collection)

    @property
    def name(self) -> str:
        """The collection's name, also if the snapshot was opened by an alias."""
        return self._collection.record.name

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""
        return self._collection.settings

    @property
    def sequence(self) -> int:
        """The sequence of the tenant's last change that the snapshot contains."""
        return self._collection.sequence

    def _find(self, request: FindRequest, read: FetchOf[P]) -> Found[P]:
        stages: list[Stage] = []
        eligible, sections = self._eligible_leaves(request, stages)
        ranker = Ranker(self._connection, self._collection, request, eligible)

        def read_documents(groups: AncestorGroups) -> tuple[tuple[P, ...], Selection]:
            ordinals = [split_label(key)[0] for key in groups.keys]
            count = expected_passages(request, self.settings)
            self._documents.expect(ordinals, count)
            first = zip(ordinals, map(groups.position, groups.keys[:count]), strict=False)
            self._documents.read_ahead(first)
            return read(Fetch(self._documents, request, ranker.locator, self._deadline), groups)

        result = None
        if can_find(request):
            result = self._find_first(request, ranker, read_documents)
        if result is None:
            result = search(
                request,
                ranker.best,
                read_documents,
                self._documents.tree,
                eligible.count,
                self._deadline,
            )
        return replace(result, stages=(*stages, *result.stages), sections=sections)

    def _find_first(self, request: FindRequest, ranker: Ranker, read: Read[P]) -> Found[P] | None:
        """Returns the result of the first round of `search`; None if another round is needed."""
        began = time.perf_counter()
        best = best_groups(ranker, request, self._documents)
        searched = time.perf_counter()
        if best is None:
            return None
        groups, total = best.groups, best.total
        reaching = groups if request.min_score is None else groups.reaching(request.min_score)
        climbed = time.perf_counter()
        has_all = total == len(groups)
        # Groups that the statement did not return score no higher than the last returned group.
        reached = total if len(reaching) == len(groups) else len(reaching)
        round_ = Round(request, total, reached, best.complete)
        if not round_.has_enough_groups:
            return None
        passages, selection = read(reaching)
        sees_enough = has_all or selection.is_full or reached < total
        if not (sees_enough and round_.is_final(selection)):
            return None
        stages = (
            ("search", began, searched),
            ("climb", searched, climbed),
            ("fetch", climbed, time.perf_counter()),
        )
        return Found(
            passages=passages,
            considered=best.considered,
            eligible_leaves=ranker.eligible.count,
            exact=best.exact,
            exhausted=round_.is_exhausted(selection),
            stages=stages,
        )

    def _eligible_leaves(
        self, request: FindRequest, stages: list[Stage]
    ) -> tuple[EligibleLeaves, tuple[ChosenSection, ...]]:
        """Returns the leaves that the request may find, and the sections chosen by summaries."""
        if request.mode is SearchMode.SUMMARY_FIRST:
            eligible, sections = self._route_by_summaries(request, stages)
        else:
            eligible, sections = self._filter_leaves(self._collection, request.filter, stages), ()
        if request.required:
            began = time.perf_counter()
            eligible = with_required(
                self._connection, self._collection, eligible, request.required, self._deadline
            )
            stages.append(("filter", began, time.perf_counter()))
        return eligible, sections

    def _filter_leaves(
        self, collection: OpenedCollection, filter: Filter | None, stages: list[Stage]
    ) -> EligibleLeaves:
        """Returns the leaves of the documents that pass the filter; all leaves if it is None."""
        if filter is None:
            return EligibleLeaves.all_of(collection)
        began = time.perf_counter()
        ordinals = selected(self._connection, *collection.place, filter, self._deadline)
        parameters = {**collection.key, "ordinals": bigints(ordinals)}
        (count,) = self._connection.execute(_LEAF_COUNT, parameters).fetchone() or (0,)
        stages.append(("filter", began, time.perf_counter()))
        return EligibleLeaves(int(count), ordinals=ordinals)

    def _route_by_summaries(
        self, request: FindRequest, stages: list[Stage]
    ) -> tuple[EligibleLeaves, tuple[ChosenSection, ...]]:
        """Returns the leaves of the best sections, and the first sections for the result.

        The filter applies to summaries, which have the metadata of their documents.
        """
        summaries = self._summaries
        if summaries is None:
            raise TypeError("the snapshot was opened without summaries")
        eligible = self._filter_leaves(summaries, request.filter, stages)
        began = time.perf_counter()
        best_sections = route(self._connection, summaries, request, eligible)
        sections = chosen_sections(
            best_sections[:_MAX_SHOWN_SECTIONS],
            PostgresDocuments(self._connection, summaries),
            self._documents,
            self.settings.tree.embedding_level,
        )
        stages.append(("search", began, time.perf_counter()))
        return EligibleLeaves.only(leaves_in(best_sections)), sections

    def _document(self, document_id: str) -> TreeText | None:
        if not is_storable(document_id):
            return None
        parameters = {**self._collection.key, "document": document_id}
        row = self._connection.execute(_ORDINAL, parameters).fetchone()
        return None if row is None else self._documents.tree_text(row[0])
