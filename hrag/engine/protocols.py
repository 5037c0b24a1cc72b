"""The protocols that an engine implements. Services, commands and tests rely only on them.

A database that searches vectors itself can implement them too, because only whole documents and
whole searches cross this interface. Methods raise only errors of `hrag.errors`. Code outside
`hrag.engine` imports no module of a specific engine; it calls `hrag.engine.open_engine`.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from hrag.engine.engine_documents import (
    CollectionHandle,
    DocumentSummaries,
    ExportedDocument,
    IngestDecision,
    PreparedDocument,
    StoredDocument,
    Unsummarised,
)
from hrag.engine.find import FindRequest, FindResult, P, ResultForm
from hrag.engine.reports import (
    BackupReport,
    CheckReport,
    MigrationReport,
    ReindexedCollection,
    VacuumReport,
)
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.collections import Alias, AliasChange, Collection, CollectionSettings, Listing
from hrag.values.deadline import NEVER, Deadline
from hrag.values.documents import (
    ByteRange,
    DocumentCount,
    DocumentDeletion,
    DocumentInfo,
    IngestResult,
)
from hrag.values.errors import HragError
from hrag.values.filters import Filter
from hrag.values.ids import ChunkId
from hrag.values.quotas import QuotaOf, unlimited
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.status import IndexStatus, ReaderStatus, StoreTotals

Progress = Callable[[str], None]
"""Receives a line of text that describes the current step."""


class Writer(Protocol):
    """Changes collections and documents. Each method commits durably before it returns.

    With a handle of a deleted collection, methods raise CollectionNotFound, except
    `wait_for_capacity` and `put_summaries`.

    Every parameter that is a collection's name may be an alias instead. Results contain the name of
    the collection, not the alias.

    Sequences count the changes of each tenant: a tenant's first change has the number 1, and each
    further change has the next number, even after the tenant's last collection was deleted.
    """

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        """Creates a collection; returns it and the sequence of its creation.

        Raises CollectionExists if a collection or an alias already has the name, and
        StorageQuotaExceeded if the tenant may have no further collection.
        """

    def delete_collection(self, tenant_id: str, name: str) -> int:
        """Deletes a collection and its documents; returns the sequence of the deletion.

        Raises CollectionNotFound, or CollectionHasAliases if aliases still name the collection.
        """

    def set_alias(self, tenant_id: str, alias: str, collection: str) -> AliasChange:
        """Makes `alias` a name of the collection, in one commit. Moves an alias that exists.

        If `collection` is itself an alias, the new alias names that alias's collection. Nothing is
        written if the alias already names the collection. Raises CollectionNotFound,
        CollectionExists if a collection has the name `alias`, or StorageQuotaExceeded if the tenant
        already has MAX_ALIASES aliases.
        """

    def delete_alias(self, tenant_id: str, alias: str) -> int:
        """Deletes an alias; returns the sequence of the deletion. Raises AliasNotFound."""

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns the tenant's aliases, ordered by name."""

    def collection(self, tenant_id: str, name: str) -> Collection:
        """Returns a collection, or raises CollectionNotFound."""

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        """Returns one page of the tenant's collections, ordered by name.

        The page begins after the name `page_token`.
        """

    def open(self, tenant_id: str, name: str) -> CollectionHandle:
        """Returns a handle of the collection, or raises CollectionNotFound."""

    def admit(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        content_hash: str,
        stored_bytes: int = 1,
    ) -> IngestDecision:
        """Decides in one read whether a document must be ingested, before any work is done for it.

        An empty `content_hash` equals no stored hash. `stored_bytes` is a lower bound of the size
        that the document will have in the store; `put` checks the real size. Raises
        CollectionNotFound, or StorageQuotaExceeded if the document would exceed the tenant's quota
        now.
        """

    def wait_for_capacity(self, collection: CollectionHandle, deadline: Deadline) -> None:
        """Applies backpressure: waits while indexing is too slow. Raises DeadlineExceeded."""

    def put(self, collection: CollectionHandle, document: PreparedDocument) -> IngestResult:
        """Creates or replaces one document, completely or not at all.

        If the stored document has the same `content_hash`, the outcome is UNCHANGED. Raises
        CollectionNotFound, InvalidArgument or TooLarge if the tree or the vectors do not fit the
        collection, StorageQuotaExceeded, or StorageFull.
        """

    def put_many(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        """Puts several documents in one commit; returns a result or an error for each document.

        Raises an error that concerns all of them, for example StorageFull. Then no document is
        stored.
        """

    def put_stored(self, collection: CollectionHandle, stored: StoredDocument) -> IngestResult:
        """Puts a document of another store together with its summaries, in one commit.

        Raises the errors of `put`, and InvalidArgument for summaries if the collection has none.
        """

    def put_metadata(
        self,
        collection: CollectionHandle,
        document_id: str,
        sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        """Replaces the metadata and the source of a document and of its summaries.

        Text, tree, vectors and index do not change. Afterwards no content hash equals the
        document's hash, so a later `put` replaces the document. Raises DocumentNotFound,
        DocumentChanged unless the document has this `sequence`, StorageQuotaExceeded, or
        StorageFull.
        """

    def delete(self, collection: CollectionHandle, document_id: str) -> int:
        """Deletes a document; returns the sequence of the deletion. Raises DocumentNotFound."""

    def delete_matching(
        self, collection: CollectionHandle, filter: Filter, deadline: Deadline = NEVER
    ) -> Iterator[DocumentDeletion]:
        """Deletes the documents that pass `filter`, in several commits.

        The filter has been checked. Each step commits a bounded number of deletions and then yields
        how many they were. The first step may delete none.

        A document is deleted if it passed the filter when the first step began and was not written
        since then. So a document that does not pass at the time of its deletion is never deleted.
        Each deletion is a separate change with a separate sequence.

        Raises CollectionNotFound and, between two commits, DeadlineExceeded or Cancelled. Committed
        deletions are kept.
        """

    def document(self, collection: CollectionHandle, document_id: str) -> DocumentInfo:
        """Returns a document without its text, or raises DocumentNotFound."""

    def document_with_text(
        self,
        collection: CollectionHandle,
        document_id: str,
        part: ByteRange | None = None,
        reply: ReplyLimit = UNLIMITED,
    ) -> tuple[DocumentInfo, str, int]:
        """Returns a document, its text and the byte offset where that text ends, from one snapshot.

        With `part`, the text begins at the part's start and has as many bytes of it as `reply`
        allows. Raises DocumentNotFound, InvalidArgument if `part` lies outside the text, and
        ReplyTooLarge if the whole text is requested and too long.
        """

    def documents(
        self,
        collection: CollectionHandle,
        page_size: int,
        page_token: str,
        reply: ReplyLimit = UNLIMITED,
        *,
        filter: Filter | None = None,
        deadline: Deadline = NEVER,
    ) -> Listing[DocumentInfo]:
        """Returns one page of documents, ordered by id, beginning after the id `page_token`.

        The page has as many documents as `page_size` and `reply` allow, and at least one if there
        is one. With `filter`, which has been checked, the page has only documents that pass it.
        Raises DeadlineExceeded or Cancelled.
        """

    def count(
        self, collection: CollectionHandle, filter: Filter | None, deadline: Deadline = NEVER
    ) -> DocumentCount:
        """Counts the documents that pass `filter`, which has been checked; None counts all.

        Raises CollectionNotFound, DeadlineExceeded or Cancelled.
        """

    def status(self, collection: CollectionHandle) -> IndexStatus:
        """Returns the counts of one collection and its tenant's usage.

        Raises CollectionNotFound.
        """

    def totals(self) -> StoreTotals:
        """Returns sums over all tenants."""

    def next_unsummarised(
        self,
        embedder: str,
        after: CollectionHandle | None = None,
        excluding: Container[int] = (),
    ) -> Unsummarised | None:
        """Returns a document whose summaries are not written yet, or None if there is none.

        Considers only collections with this `embedder`. Collections take turns: a document of the
        collection `after` is returned only if no other collection has one. Documents whose version
        is in `excluding` are skipped. Raises UnreadableVersion for damage; the caller can skip it
        with `excluding`.
        """

    def put_summaries(
        self, document: Unsummarised, summaries: DocumentSummaries, tokens: int = 0
    ) -> bool:
        """Stores a document's summaries. Returns False if it was replaced or deleted meanwhile.

        `tokens` is the number of tokens that the chat model has read and written for the summaries.
        It is added to the collection's total in both cases, and also if the version is NO_VERSION.
        Raises InvalidArgument or StorageFull.
        """


class Snapshot(Protocol):
    """A read-only view of one collection at one sequence. It lives as long as one call."""

    @property
    def name(self) -> str:
        """The collection's name; never the alias by which it was opened."""

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""

    @property
    def sequence(self) -> int:
        """The sequence of the last change of the tenant that the snapshot contains."""

    def find(self, request: FindRequest, form: ResultForm[P]) -> FindResult[P]:
        """Runs a search: every step of it except embedding the query.

        `form` decides in which form the passages are read. What the fields of an Encoded form
        return for a document may be cached for its other chunks.

        Raises DeadlineExceeded or Cancelled once the snapshot's deadline has passed or its caller
        has left, and ReplyTooLarge before the passages are created.
        """

    def chunk(self, chunk_id: ChunkId, reply: ReplyLimit = UNLIMITED) -> ChunkNode:
        """Returns the chunk with the ids of its parent and children.

        Raises DocumentNotFound or ChunkNotFound, and ReplyTooLarge before the chunk is created.
        """

    def hierarchy(
        self, chunk_id: ChunkId, depth: int, *, content: bool, reply: ReplyLimit = UNLIMITED
    ) -> Hierarchy:
        """Returns the chunk with its relatives, `depth` levels down.

        With `content`, the relatives have their text too. Raises the errors of `chunk`.
        """


class Reader(Protocol):
    """Opens snapshots. A snapshot contains every change that was acknowledged before it was opened.

    A collection may be named by an alias, which is resolved in the opened snapshot.
    """

    def snapshot(
        self,
        tenant_id: str,
        collection: str,
        *,
        summaries: bool = False,
        deadline: Deadline = NEVER,
    ) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot. With `summaries`, SUMMARY_FIRST can search it.

        Once the deadline has passed, work on the snapshot raises DeadlineExceeded. Raises
        CollectionNotFound and, with `summaries`, NoSummaries.
        """

    def sequence(self, tenant_id: str) -> int:
        """Returns the sequence of the tenant's last change; 0 before the first change."""

    def collections(self) -> Iterator[Collection]:
        """Yields the collections of all tenants, ordered by tenant and name.

        With `aliases` and `export`, this is enough to copy a whole store.
        """

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns the tenant's aliases, ordered by name."""

    def export(self, tenant_id: str, collection: str) -> Iterator[ExportedDocument]:
        """Yields every document of a collection, each in its state at the moment when it is read.

        Documents are ordered by the bytes of their ids. A damaged document is yielded as an
        UnreadableDocument, and the export continues with the next one. No transaction is open
        between two documents. Raises CollectionNotFound.
        """

    def status(self) -> ReaderStatus:
        """Returns how far the reader has followed the store, and what it has in memory."""

    def preload(self) -> None:
        """Loads what searches would otherwise wait for, as far as memory allows."""

    def close(self) -> None:
        """Releases the store."""


class Maintenance(Protocol):
    """The background work that belongs to a writer: indexing, merging, repair, reclaiming."""

    def start(self) -> None:
        """Starts the work. First finishes what an earlier process left unfinished."""

    def close(self) -> bool:
        """Stops the work soon. Returns False if a step still runs; the next start repeats it."""


class Administration(Protocol):
    """Operations on a whole store, for operators.

    They raise StoreMissing if there is no store, and StoreUnavailable if the store cannot be opened
    for the operation. If an engine leaves an operation to its database's tools, it raises
    NotSupported, whose message names these tools.
    """

    def check(self) -> CheckReport:
        """Reads the whole store and reports each broken invariant. Repairs nothing."""

    def repair(self) -> CheckReport:
        """Rebuilds everything that is derived from the documents; reports the remaining problems.

        Needs exclusive access to the store. Raises StorageFull; then the store is unchanged.
        """

    def backup(self, target: Path, progress: Progress) -> BackupReport:
        """Copies the store into the new folder `target`. The store may be in use.

        Raises StorageFull; then nothing is left in `target`.
        """

    def restore(self, source: Path, progress: Progress) -> BackupReport:
        """Creates a store from the backup in `source`. There must be no store yet.

        Returns the report of that backup. Raises StorageFull; then there is still no store.
        """

    def vacuum(self) -> VacuumReport:
        """Frees the disk space of deleted documents; reports the store's size before and after.

        Needs exclusive access to the store. Raises StorageFull; then the store is unchanged.
        """

    def migrate(self) -> MigrationReport:
        """Migrates the store's schema to this version of hrag. All services must be stopped.

        Creates the store if there is none.
        """

    def reindex(self) -> Iterator[ReindexedCollection]:
        """Rebuilds each collection's index from its documents, one per step of the iterator.

        Searches use the old index until the new one is complete. Raises StorageFull. If a
        collection is damaged, raises DataLoss after all other collections are rebuilt.
        """


class Engine(Protocol):
    """A store that is identified by its settings. Nothing is opened until a method needs it.

    A process that both writes and reads opens the writer first, because the reader may share what
    the writer has opened.
    """

    @property
    def name(self) -> str:
        """The engine's name, a value of HRAG_ENGINE."""

    @property
    def location(self) -> str:
        """The place of the store, as a text for people. Contains no secrets."""

    def writer(self, quota_of: QuotaOf = unlimited) -> Writer:
        """Opens the store for writing; creates it if there is none. May be called once.

        Raises StoreUnavailable, or StorageFull if the store cannot be created.
        """

    def maintenance(self) -> Maintenance:
        """Returns the maintenance of the store that the writer opened, not started yet."""

    def reader(self) -> Reader:
        """Opens the store for searching. This process or another one may be writing to it.

        Raises StoreMissing while there is no store, or StoreUnavailable.
        """

    def administration(self) -> Administration:
        """Returns the store's administration. Opens nothing; its methods open what they need."""

    def require_store(self) -> None:
        """Raises StoreUnavailable if the opened store can no longer be written to.

        This is for health checks: it takes microseconds, and searches may still succeed.
        """

    def close(self) -> None:
        """Closes everything that the engine has opened. Maintenance must be closed before."""
