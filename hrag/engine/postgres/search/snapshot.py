"""The snapshot of a collection that one call reads: a REPEATABLE READ transaction.

A search runs in steps:

1. Find the eligible leaves: the leaves of documents that pass the filter. With two-stage routing,
   only leaves in the best sections are eligible. If the query requires words,
   only leaves with these words are eligible.
2. Rank the eligible leaves: each source returns candidates, and their scores are fused.
3. Group the candidates by their ancestors. If this gives too few passages, rank more candidates.
4. Fetch the passages.

All statements of a call see the same state of the database.
"""

import time
from dataclasses import replace
from typing import TypeAlias

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.fetch import Fetch
from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.rounds import Round, RoundOutcome
from hrag.engine.common.search import Read, search
from hrag.engine.common.section_choice import SectionChoice, choose_sections, with_documents
from hrag.engine.common.snapshot import BrowsableSnapshot
from hrag.engine.common.validation import no_document
from hrag.engine.find import FindRequest, FindResult, P, ResultForm
from hrag.engine.postgres.search.best_groups import best_groups, can_find, expected_passages
from hrag.engine.postgres.search.document_reader import PostgresDocuments
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.ranker import Ranker
from hrag.engine.postgres.search.required_terms import leaves_with_required_parts
from hrag.engine.postgres.search.summary_router import PostgresEvidence, chosen_sections, leaves_in
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.filter_sql import matching_ordinals
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.engine.postgres.store.queries import document_named, find_document, is_storable
from hrag.engine.postgres.store.stored_text import read_text
from hrag.observe.tracing import Stage
from hrag.passages.tree_text import TreeText
from hrag.values.collections import CollectionSettings
from hrag.values.deadline import Deadline
from hrag.values.documents import ByteRange, DocumentInfo
from hrag.values.errors import DataLoss
from hrag.values.filters import Filter, only_document
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.search import ChosenSection, SearchMode

_Eligible: TypeAlias = tuple[EligibleLeaves, tuple[ChosenSection, ...], SectionChoice | None]

_ORDINAL = """
SELECT ordinal FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id = %(document)s
"""
_ORIGINAL = """
SELECT substring(original FROM %(first)s::integer FOR %(count)s::integer) FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND ordinal = %(ordinal)s
"""


class PostgresSnapshot(BrowsableSnapshot):
    """The state of a collection in one transaction. Implements `hrag.engine.Snapshot`.

    The snapshot can be used as long as its transaction is open.
    """

    def __init__(
        self,
        connection: Connection,
        collection: OpenedCollection,
        summaries: OpenedCollection | None,
        deadline: Deadline,
    ) -> None:
        """Stores the arguments; runs no statement.

        `summaries` is the collection that has the summaries of the documents of `collection`; None
        if the snapshot is opened without it.
        """
        self._connection = connection
        self._collection = collection
        self._summaries = summaries
        self._deadline = deadline
        self._documents = PostgresDocuments(connection, collection)

    @property
    def name(self) -> str:
        """The name of the collection; never an alias, even if the snapshot was opened by one."""
        return self._collection.record.name

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""
        return self._collection.settings

    @property
    def sequence(self) -> int:
        """The sequence number of the tenant's last change that the snapshot contains."""
        return self._collection.sequence

    def find(self, request: FindRequest, form: ResultForm[P]) -> FindResult[P]:
        """Runs a search. `form` determines the form of the returned passages.

        A round of a search ranks candidate leaves and groups them by ancestor. Most searches need
        only one round, for which `_first_round` runs one or two statements. The other searches run
        several rounds, each with more candidates than the round before.

        Implements `Snapshot.find`.
        """
        stages: list[Stage] = []
        eligible, sections, choice = self._eligible_leaves(request, stages)
        ranker = Ranker(self._connection, self._collection, request, eligible)

        def read(groups: AncestorGroups) -> tuple[tuple[P, ...], RoundOutcome]:
            self._read_ahead(request, groups)
            # The locator finds the query's terms in passages. It needs the statistics of the terms,
            # which the first round reads together with its candidates. So the locator is created
            # here, after the round.
            fetch = Fetch(self._documents, request, form, ranker.locator, self._deadline)
            return fetch.read(groups)

        first = self._first_round(request, ranker, read) if can_find(request) else None
        if first is not None:
            return replace(first, stages=(*stages, *first.stages), sections=sections)
        return search(
            request,
            with_documents(ranker.best, choice),
            read,
            self._documents.tree,
            eligible.count,
            self._deadline,
            stages=stages,
            sections=sections,
        )

    def _read_ahead(self, request: FindRequest, groups: AncestorGroups) -> None:
        """Prepares the reading of passages, so that few statements read their documents and texts.

        A group is a chunk with its matched leaves. Passes the documents of all groups to
        `PostgresDocuments.expect`, and reads the texts of as many of the best groups as a search
        nearly always needs.
        """
        chunks = [groups.chunk_of(key) for key in groups.keys]
        count = expected_passages(request, self.settings)
        self._documents.expect([ordinal for ordinal, _ in chunks], count)
        self._documents.read_ahead(chunks[:count], request.reply.left_bytes)

    def _first_round(
        self, request: FindRequest, ranker: Ranker, read: Read[P]
    ) -> FindResult[P] | None:
        """Runs the first round of a search in one or two statements; returns the search's result.

        Returns None if the candidates of this round do not give enough passages. The caller must
        then run the search round by round.
        """
        began = time.perf_counter()
        best = best_groups(ranker, request, self._documents)
        searched = time.perf_counter()
        if best is None:
            return None
        groups, total = best.groups, best.total
        reaching = groups if request.min_score is None else groups.reaching(request.min_score)
        climbed = time.perf_counter()
        has_all = total == len(groups)
        # `reached` is the count of groups that may reach `min_score`. The statement returned only
        # the best groups. If one of these is below `min_score`, all groups that the statement did
        # not return are below `min_score` too. If none of these is below `min_score`, the other
        # groups may reach `min_score` too, so `reached` counts all groups.
        reached = total if len(reaching) == len(groups) else len(reaching)
        round_ = Round(request, best.considered, total, reached, best.complete)
        if not round_.has_enough_groups:
            return None
        passages, outcome = read(reaching)
        sees_enough = has_all or outcome.ended_early or reached < total
        if not (sees_enough and round_.is_final(outcome)):
            return None
        stages = (
            ("search", began, searched),
            ("climb", searched, climbed),
            ("fetch", climbed, time.perf_counter()),
        )
        return FindResult(
            passages=passages,
            considered=best.considered,
            eligible_leaves=ranker.eligible.count,
            exact=best.exact,
            exhausted=round_.is_exhausted(outcome),
            stages=stages,
        )

    def _eligible_leaves(self, request: FindRequest, stages: list[Stage]) -> _Eligible:
        """Returns the leaves that the search may find, and the sections that routing chose.

        In the mode SUMMARY_FIRST, two-stage routing chooses the best sections.
        In other modes, no section is returned. Appends the name, start time and end time of each
        step to `stages`.
        """
        if request.mode is SearchMode.SUMMARY_FIRST:
            eligible, sections, choice = self._route_by_summaries(request, stages)
        else:
            eligible = self._filter_leaves(self._collection, request.filter, stages)
            sections, choice = (), None
        if request.required:
            began = time.perf_counter()
            eligible = leaves_with_required_parts(
                self._connection, self._collection, eligible, request.required, self._deadline
            )
            stages.append(("filter", began, time.perf_counter()))
        return eligible, sections, choice

    def _filter_leaves(
        self, collection: OpenedCollection, filter: Filter | None, stages: list[Stage]
    ) -> EligibleLeaves:
        """Returns the leaves of the documents that pass the filter; all leaves without a filter."""
        if filter is None:
            return EligibleLeaves.all_of(collection)
        began = time.perf_counter()
        ordinals = matching_ordinals(
            self._connection, *collection.tenant_and_id, filter, self._deadline
        )
        eligible = EligibleLeaves.of_documents(self._connection, collection, ordinals)
        stages.append(("filter", began, time.perf_counter()))
        return eligible

    def _route_by_summaries(self, request: FindRequest, stages: list[Stage]) -> _Eligible:
        """Chooses the best sections; returns their leaves and the sections.

        The first value has the leaves of all chosen sections. The second value lists those of
        these sections that the response lists, best first. The filter is evaluated on the
        documents and on their summaries, which have the same metadata.
        """
        summaries = self._summaries
        if summaries is None:
            raise TypeError("the snapshot was opened without summaries")
        summary_leaves = self._filter_leaves(summaries, request.filter, stages)
        leaves = self._filter_leaves(self._collection, request.filter, stages)
        began = time.perf_counter()
        evidence = PostgresEvidence(
            self._connection, request, (self._collection, leaves), (summaries, summary_leaves)
        )
        choice = choose_sections(request, evidence, self._collection.leaves)
        sections = chosen_sections(
            choice.sections.shown(request),
            PostgresDocuments(self._connection, summaries),
            self._documents,
            self.settings.tree.embedding_level,
        )
        stages.append(("search", began, time.perf_counter()))
        return EligibleLeaves.only(leaves_in(choice.sections)), sections, choice

    def document(self, document_id: str, filter: Filter | None = None) -> DocumentInfo:
        """Returns a document without its text. Implements `Snapshot.document`."""
        handle = self._collection.handle
        _, record = find_document(self._connection, handle, document_id)
        if filter is not None:
            only = only_document(filter, document_id)
            key = self._collection.tenant_and_id
            if not len(matching_ordinals(self._connection, *key, only, self._deadline)):
                raise no_document(handle, document_id)
        return record.info()

    def document_with_text(
        self, document_id: str, part: ByteRange | None = None, reply: ReplyLimit = UNLIMITED
    ) -> tuple[DocumentInfo, str, int]:
        """Returns a document with its text. Implements `Snapshot.document_with_text`."""
        return read_text(self._connection, self._collection.handle, document_id, part, reply)

    def _document(self, document_id: str) -> TreeText | None:
        if not is_storable(document_id):
            return None
        parameters = {**self._collection.key, "document": document_id}
        row = self._connection.execute(_ORDINAL, parameters).fetchone()
        return None if row is None else self._documents.tree_text(row[0])

    def _record(self, document_id: str) -> tuple[int, DocumentRecord] | None:
        return document_named(self._connection, self._collection.handle, document_id)

    def _original_bytes(self, ordinal: int, start: int, end: int) -> bytes:
        part = {"ordinal": ordinal, "first": start + 1, "count": end - start}
        row = self._connection.execute(_ORIGINAL, {**self._collection.key, **part}).fetchone()
        if row is None or row[0] is None or len(row[0]) != end - start:
            raise DataLoss(
                f"the original of ordinal {ordinal} is damaged: its size is not the one that its "
                "record says; ingesting the document again repairs it"
            )
        return bytes(row[0])
