"""One call's snapshot of a collection: a REPEATABLE READ transaction.

A search runs in steps: eligible leaves (a filter's, a summary routing's, those with what the
query requires) -> ranking (candidates of each source, fused) -> groups -> enough passages? ->
fetch. All statements of a call see the same change.
"""

import time
from dataclasses import replace

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.fetch import Fetch
from hrag.engine.common.labels import split_label
from hrag.engine.common.rounds import Round, Selection
from hrag.engine.common.search import Read, search
from hrag.engine.common.snapshot import BrowsableSnapshot
from hrag.engine.find import FindRequest, FindResult, P, ResultForm
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

_MAX_SHOWN_SECTIONS = 100  # As many as passages.

_LEAF_COUNT = """
SELECT coalesce(sum(leaf_count), 0) FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal = ANY(%(ordinals)b::bigint[])
"""
_ORDINAL = """
SELECT ordinal FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id = %(document)s
"""


class PostgresSnapshot(BrowsableSnapshot):
    """A collection at one change. Implements `hrag.engine.Snapshot`.

    It can be used as long as its transaction is open.
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
        """The collection's own name."""
        return self._collection.record.name

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""
        return self._collection.settings

    @property
    def sequence(self) -> int:
        """The tenant's last change that the snapshot holds."""
        return self._collection.sequence

    def find(self, request: FindRequest, form: ResultForm[P]) -> FindResult[P]:
        """Runs a search and returns its passages in `form`. Implements `Snapshot.find`.

        Most searches need only their first round, which one or two statements answer. The other
        searches run in rounds.
        """
        stages: list[Stage] = []
        eligible, sections = self._eligible(request, stages)
        ranker = Ranker(self._connection, self._collection, request, eligible)

        def read(groups: AncestorGroups) -> tuple[tuple[P, ...], Selection]:
            self._read_ahead(request, groups)
            # The first round reads the statistics of terms together with its candidates. The
            # locator needs them, so it must not be created before.
            fetch = Fetch(self._documents, request, form, ranker.locator, self._deadline)
            return fetch.read(groups)

        first = self._first_round(request, ranker, read) if can_find(request) else None
        if first is not None:
            return replace(first, stages=(*stages, *first.stages), sections=sections)
        return search(
            request,
            ranker.best,
            read,
            self._documents.tree,
            eligible.count,
            self._deadline,
            stages=stages,
            sections=sections,
        )

    def _read_ahead(self, request: FindRequest, groups: AncestorGroups) -> None:
        """Reads the documents of the best groups, as many as nearly always suffice, at once."""
        ordinals = [split_label(key)[0] for key in groups.keys]
        count = expected_passages(request, self.settings)
        self._documents.expect(ordinals, count)
        positions = map(groups.position, groups.keys[:count])
        self._documents.read_ahead(zip(ordinals, positions, strict=False))

    def _first_round(
        self, request: FindRequest, ranker: Ranker, read: Read[P]
    ) -> FindResult[P] | None:
        """Returns the result of the search if its first round is enough, else None."""
        began = time.perf_counter()
        found = best_groups(ranker, request, self._documents)
        searched = time.perf_counter()
        if found is None:
            return None
        groups, total = found.groups, found.total
        reaching = groups if request.min_score is None else groups.reaching(request.min_score)
        climbed = time.perf_counter()
        has_all = total == len(groups)
        # Those that the statement did not return score no higher than the last one.
        reached = total if len(reaching) == len(groups) else len(reaching)
        round_ = Round(request, total, reached, found.complete)
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
        return FindResult(
            passages=passages,
            considered=found.considered,
            eligible_leaves=ranker.eligible.count,
            exact=found.exact,
            exhausted=round_.is_exhausted(selection),
            stages=stages,
        )

    def _eligible(
        self, request: FindRequest, stages: list[Stage]
    ) -> tuple[EligibleLeaves, tuple[ChosenSection, ...]]:
        """The leaves that the request may find, and the sections that summaries led to."""
        if request.mode is SearchMode.SUMMARY_FIRST:
            eligible, sections = self._routed(request, stages)
        else:
            eligible, sections = self._filtered(self._collection, request.filter, stages), ()
        if request.required:
            began = time.perf_counter()
            eligible = with_required(
                self._connection, self._collection, eligible, request.required, self._deadline
            )
            stages.append(("filter", began, time.perf_counter()))
        return eligible, sections

    def _filtered(
        self, collection: OpenedCollection, given: Filter | None, stages: list[Stage]
    ) -> EligibleLeaves:
        """The leaves of the documents that pass a filter, or all."""
        if given is None:
            return EligibleLeaves.all_of(collection)
        began = time.perf_counter()
        ordinals = selected(self._connection, *collection.place, given, self._deadline)
        parameters = {**collection.key, "ordinals": bigints(ordinals)}
        (count,) = self._connection.execute(_LEAF_COUNT, parameters).fetchone() or (0,)
        stages.append(("filter", began, time.perf_counter()))
        return EligibleLeaves(int(count), ordinals=ordinals)

    def _routed(
        self, request: FindRequest, stages: list[Stage]
    ) -> tuple[EligibleLeaves, tuple[ChosenSection, ...]]:
        """The leaves of the best sections, and the first of these sections as values.

        The filter selects summaries, which have the metadata of their documents.
        """
        summaries = self._summaries
        if summaries is None:
            raise TypeError("the snapshot was opened without summaries")
        eligible = self._filtered(summaries, request.filter, stages)
        began = time.perf_counter()
        routed = route(self._connection, summaries, request, eligible)
        sections = chosen_sections(
            routed[:_MAX_SHOWN_SECTIONS],
            PostgresDocuments(self._connection, summaries),
            self._documents,
            self.settings.tree.embedding_level,
        )
        stages.append(("search", began, time.perf_counter()))
        return EligibleLeaves.only(leaves_in(routed)), sections

    def _document(self, document_id: str) -> TreeText | None:
        if not is_storable(document_id):
            return None
        parameters = {**self._collection.key, "document": document_id}
        row = self._connection.execute(_ORDINAL, parameters).fetchone()
        return None if row is None else self._documents.tree_text(row[0])
