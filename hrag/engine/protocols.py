"""The protocols that an engine implements. Services, commands and tests rely only on them.

A caller passes whole documents and whole searches to an engine. So an engine may also use a
database that searches vectors itself. Methods raise only errors of `hrag.errors`. Code outside
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
    UncopiedDocument,
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
    OriginalPart,
)
from hrag.values.errors import HragError
from hrag.values.filters import Filter
from hrag.values.ids import ChunkId
from hrag.values.quotas import QuotaOf, Tenant, unlimited
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.status import IndexStatus, ReaderStatus, StoreTotals
from hrag.values.tree import ParsedText

Progress = Callable[[str], None]
"""A callback. Its argument is a line of text that describes the current step of an operation."""


class Writer(Protocol):
    """Changes collections and documents. Each method commits durably before it returns.

    With a handle of a deleted collection, all methods except `wait_for_capacity` and
    `put_summaries` raise CollectionNotFound.

    Every parameter that is a collection's name may be an alias instead. Results contain the name of
    the collection, not the alias.

    A sequence number counts the changes of a tenant: the tenant's first change has the sequence
    number 1, and each further change has the next number. Deleting all collections of the tenant
    does not restart the count.
    """

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        """Creates a collection; returns the collection and the sequence number of its creation.

        Raises CollectionExists if a collection or an alias already has the name. Raises
        StorageQuotaExceeded if the tenant may not have more collections.
        """

    def delete_collection(self, tenant_id: str, name: str) -> int:
        """Deletes a collection and its documents; returns the sequence number of the deletion.

        Raises CollectionHasAliases if aliases still refer to the collection. Raises
        CollectionNotFound if there is no such collection.
        """

    def set_alias(self, tenant_id: str, alias: str, collection: str) -> AliasChange:
        """Makes `alias` refer to a collection, in one commit.

        An existing alias is changed. If `collection` is itself an alias, `alias` will refer to the
        collection that `collection` refers to. Nothing is written if `alias` already refers to this
        collection.

        Raises CollectionExists if a collection has the name `alias`. Raises StorageQuotaExceeded if
        the tenant already has MAX_ALIASES aliases. Raises CollectionNotFound if there is no
        `collection`. Raises CopyInProgress if the collection is an unfinished copy.
        """

    def delete_alias(self, tenant_id: str, alias: str) -> int:
        """Deletes an alias; returns the sequence number of the deletion. Raises AliasNotFound."""

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns the tenant's aliases, ordered by name."""

    def begin_copy(
        self, tenant_id: str, name: str, copy_name: str, settings: CollectionSettings
    ) -> tuple[CollectionHandle, CollectionHandle]:
        """Creates an empty copy of a collection, or finds the copy that an earlier call created.

        Returns the handles of the collection and of its copy. `settings` are the settings of the
        copy; only the embedder and the dimension may differ from those of the collection.

        While a collection has a copy, every document in the copy is the current version of a
        document in the collection. This is because a change of a document in the collection also
        deletes the document from the copy, in the same commit; a change of metadata alone is made
        in both. Other documents cannot be put into the copy. Deleting the collection deletes its
        copy too.

        Raises CollectionNotFound. Raises CollectionExists if `copy_name` is in use. Raises
        CopyInProgress if the collection is a copy itself, or already has a copy with another name
        or another embedder. Raises StorageQuotaExceeded if the tenant may not have another
        collection with as many documents and bytes.
        """

    def uncopied(
        self, source: CollectionHandle, after: str, max_documents: int, max_bytes: int
    ) -> list[UncopiedDocument]:
        """Returns documents of `source` that its copy does not have, ordered by id.

        The first one is the first after the document id `after`. Returns at most `max_documents`
        documents, and stops after the document with which their texts, trees and vectors together
        have `max_bytes` bytes. Returns an empty list if there is no such document after `after`.
        Raises CollectionNotFound if `source` was deleted or has no copy. Raises DataLoss if the
        next document is damaged.
        """

    def put_copies(self, source: CollectionHandle, documents: Sequence[UncopiedDocument]) -> int:
        """Puts documents into the copy of `source`, in one commit; returns how many were put.

        The documents were returned by `uncopied`, and have vectors of the copy's embedder since
        then. A document that was changed or deleted meanwhile is not put. Raises CollectionNotFound
        if `source` was deleted or has no copy. Raises InvalidArgument if vectors do not fit the
        copy. May also raise StorageQuotaExceeded or StorageFull.
        """

    def finish_copy(self, source: CollectionHandle) -> int | None:
        """Lets the copy take the place of `source` in one commit, if the copy is complete.

        The copy gets the name and all aliases of the collection, and the collection is deleted.
        Returns the sequence number of this change. Returns None, and changes nothing, if the copy
        lacks documents of the collection. Raises CollectionNotFound if `source` was deleted or has
        no copy.
        """

    def collection(self, tenant_id: str, name: str) -> Collection:
        """Returns the collection with this name or alias, or raises CollectionNotFound."""

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        """Returns one page of at most `page_size` collections of the tenant, ordered by name.

        The page begins after the name `page_token`.
        """

    def open(self, tenant_id: str, name: str) -> CollectionHandle:
        """Returns the handle (tenant, name, id and settings) of a collection.

        Raises CollectionNotFound if there is no such collection.
        """

    def admit(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        content_hash: str,
        stored_bytes: int = 1,
    ) -> IngestDecision:
        """Decides, before a document is parsed or embedded, whether it must be ingested.

        The document need not be ingested if a document with the same id and the same `content_hash`
        is stored already; then the decision contains the result UNCHANGED. With an empty
        `content_hash`, the document must always be ingested. `stored_bytes` is a lower bound of the
        size that the document will have in the store; `put` checks the real size. Raises
        StorageQuotaExceeded if the document must be ingested and `stored_bytes` would exceed the
        tenant's quota. Raises CollectionNotFound if there is no such collection.
        """

    def wait_for_capacity(self, collection: CollectionHandle, deadline: Deadline) -> None:
        """Applies backpressure: waits while too many leaves of the collection are not indexed yet.

        Raises DeadlineExceeded.
        """

    def put(self, collection: CollectionHandle, document: PreparedDocument) -> IngestResult:
        """Creates or replaces one document, completely or not at all.

        If the stored document has the same `content_hash`, the outcome is UNCHANGED. Raises
        InvalidArgument or TooLarge if the tree or the vectors do not fit the collection. May also
        raise CollectionNotFound, StorageQuotaExceeded or StorageFull.
        """

    def put_many(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        """Creates or replaces several documents; returns a result or an error for each document.

        All documents of a tenant are stored in one commit. Exception: if stored data are damaged,
        each document may be stored in a separate commit, so that the other documents can be stored.
        If the first commit fails, for example with StorageFull, raises the error. If a later commit
        fails, the error is returned for each document of this commit.
        """

    def put_stored(self, collection: CollectionHandle, stored: StoredDocument) -> IngestResult:
        """Stores a document that was read from another store, with its summaries, in one commit.

        Raises the errors of `put`. Also raises InvalidArgument if the document has summaries, but
        the documents of this collection are not summarised.
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

        Text, tree, vectors and index do not change. The document's content hash is deleted, so a
        later `put` of the same content replaces the document too. Raises DocumentChanged if
        the sequence number of the document's last change is not `sequence`. May also raise
        DocumentNotFound, StorageQuotaExceeded or StorageFull.
        """

    def delete(self, collection: CollectionHandle, document_id: str) -> int:
        """Deletes a document; returns the deletion's sequence number. Raises DocumentNotFound."""

    def delete_matching(
        self, collection: CollectionHandle, filter: Filter, deadline: Deadline = NEVER
    ) -> Iterator[DocumentDeletion]:
        """Deletes the documents that pass `filter`, in several commits.

        The caller has checked the filter. Each step of the iterator commits a bounded count of
        deletions and then yields this count. The first count may be 0.

        A document is deleted if it passed the filter when the first step began, and was not changed
        since then. A document that was changed is not deleted, because it may no longer pass the
        filter. Each deletion is a separate change with a separate sequence number.

        Raises CollectionNotFound. Between two commits, may raise DeadlineExceeded or Cancelled.
        Deletions that were committed before the error are not undone.
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
        """Returns a document, its text, and the byte offset at which the returned text ends.

        All three are read from one snapshot. `reply` is the size limit of the response. With
        `part`, the returned text begins at the part's start and has as many bytes of the part as
        this limit allows. Raises InvalidArgument if `part` is outside the text. Raises
        ReplyTooLarge if `part` is None and the whole text does not fit. Raises DocumentNotFound if
        there is no such document.
        """

    def document_with_original(
        self, collection: CollectionHandle, document_id: str
    ) -> tuple[DocumentInfo, ParsedText, bytes]:
        """Returns a document, its whole text with its pages, and its original, of one snapshot.

        Raises DocumentNotFound, or OriginalNotFound if the file is not stored.
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

        The page has as many documents as `page_size` and the size limit `reply` of the response
        allow. It always has the first document, even if this document alone exceeds the size limit.
        With `filter`, which the caller has checked, the page has only documents that pass the
        filter. Raises DeadlineExceeded or Cancelled.
        """

    def count(
        self, collection: CollectionHandle, filter: Filter | None, deadline: Deadline = NEVER
    ) -> DocumentCount:
        """Counts the documents that pass `filter`, or all documents if `filter` is None.

        The caller has checked the filter. Raises CollectionNotFound, DeadlineExceeded or Cancelled.
        """

    def status(self, collection: CollectionHandle) -> IndexStatus:
        """Returns the size and the state of a collection, and the usage of its tenant.

        Raises CollectionNotFound.
        """

    def tenants(
        self, page_size: int, page_token: str, deadline: Deadline = NEVER
    ) -> Listing[Tenant]:
        """Returns one page of at most `page_size` tenants that have a collection, ordered by id.

        The page begins after the id `page_token`. The cost grows with the number of collections of
        these tenants. Raises DeadlineExceeded or Cancelled.
        """

    def totals(self) -> StoreTotals:
        """Returns the counts and sizes of the whole store, summed over all collections."""

    def next_unsummarised(
        self,
        embedder: str,
        after: CollectionHandle | None = None,
        excluding: Container[int] = (),
    ) -> Unsummarised | None:
        """Returns a document whose summaries are not written yet; None if there is none.

        Considers only collections whose documents are embedded by `embedder`. Returns a document of
        the collection `after` only if no other collection has such a document, so that all
        collections make progress. Raises UnreadableVersion for a damaged document or collection.
        Skips documents and damaged collections whose `version` is in `excluding`. So the caller can
        add the error's `version` to `excluding` and call again.
        """

    def put_summaries(
        self, document: Unsummarised, summaries: DocumentSummaries, tokens: int = 0
    ) -> bool:
        """Stores a document's summaries.

        Returns False, and stores no summaries, if the document was replaced or deleted since
        `next_unsummarised` returned the document. `tokens` is the count of tokens that the chat
        model has read and written for the summaries. This count is always added to the collection's
        total, even if no summaries are stored. Raises InvalidArgument or StorageFull.
        """


class Snapshot(Protocol):
    """A read-only view of a collection at one sequence number, for the duration of one call."""

    @property
    def name(self) -> str:
        """The collection's name, even if the snapshot was opened with an alias."""

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""

    @property
    def sequence(self) -> int:
        """The sequence number of the tenant's last change that is visible in the snapshot."""

    def find(self, request: FindRequest, form: ResultForm[P]) -> FindResult[P]:
        """Runs a search whose query is already embedded, and returns the passages.

        `form` decides in which form the passages are returned. For an Encoded form, the engine may
        cache the bytes that `form.fields` returns for a document, and use them for all passages of
        the document.

        Raises DeadlineExceeded if the snapshot's deadline has passed. Raises Cancelled if the
        client has cancelled the call. Raises ReplyTooLarge, before the passages are created, if
        they do not fit the size limit `request.reply`.
        """

    def document(self, document_id: str, filter: Filter | None = None) -> DocumentInfo:
        """Returns a document without its text.

        The caller has checked `filter`. Raises DocumentNotFound if there is no such document, or if
        it does not pass `filter`.
        """

    def document_with_text(
        self, document_id: str, part: ByteRange | None = None, reply: ReplyLimit = UNLIMITED
    ) -> tuple[DocumentInfo, str, int]:
        """Returns a document, its text, and the byte offset at which the returned text ends.

        `part` and `reply` have the same meaning as in `Writer.document_with_text`, which raises the
        same errors.
        """

    def chunk(self, chunk_id: ChunkId, reply: ReplyLimit = UNLIMITED) -> ChunkNode:
        """Returns the chunk with the id `chunk_id`, and the ids of its parent and children.

        Raises DocumentNotFound or ChunkNotFound. Raises ReplyTooLarge, before the chunk is created,
        if the chunk does not fit the size limit `reply`.
        """

    def original(
        self, document_id: str, part: ByteRange, reply: ReplyLimit = UNLIMITED
    ) -> OriginalPart:
        """Returns a part of a document's original, the file from which the document was read.

        The part has as many of its bytes as the size limit `reply` allows. Raises DocumentNotFound,
        or OriginalNotFound if the file is not stored. Raises InvalidArgument if `part` is outside
        the file.
        """

    def hierarchy(
        self, chunk_id: ChunkId, depth: int, *, content: bool, reply: ReplyLimit = UNLIMITED
    ) -> Hierarchy:
        """Returns a chunk with its ancestors, siblings, and descendants `depth` levels down.

        With `content`, all returned chunks have their texts. Without `content`, only the chunk with
        the id `chunk_id` has its text. Raises the errors of `chunk`.
        """


class Reader(Protocol):
    """Opens snapshots. A snapshot contains every change that was acknowledged before it was opened.

    An alias may be passed instead of a collection's name. It is resolved in the opened snapshot.
    """

    def snapshot(
        self,
        tenant_id: str,
        collection: str,
        *,
        summaries: bool = False,
        deadline: Deadline = NEVER,
    ) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot of a collection.

        A search in the mode SUMMARY_FIRST needs a snapshot that was opened with `summaries`. After
        the deadline, the methods of the snapshot raise DeadlineExceeded. Raises CollectionNotFound.
        With `summaries`, raises NoSummaries if the collection has no summaries.
        """

    def sequence(self, tenant_id: str) -> int:
        """Returns the sequence number of the tenant's last change; 0 before the first change."""

    def collections(self) -> Iterator[Collection]:
        """Yields the collections of all tenants, ordered by tenant and name.

        Together with `aliases` and `export`, this method suffices to copy a whole store.
        """

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns the tenant's aliases, ordered by name."""

    def export(self, tenant_id: str, collection: str) -> Iterator[ExportedDocument]:
        """Yields every document of a collection, each in its state at the moment when it is read.

        Documents are ordered by the bytes of their ids. A damaged document is yielded as a
        DamagedDocument, and the export continues with the next document. No transaction is open
        between two documents. Raises CollectionNotFound.
        """

    def status(self) -> ReaderStatus:
        """Returns how far the reader is behind the store, and how much memory it uses."""

    def preload(self) -> None:
        """Loads indexes, up to the memory limit, so that the first searches need not wait."""

    def close(self) -> None:
        """Stops the reader's background work. Does not close the store; `Engine.close` does."""


class Maintenance(Protocol):
    """The background work of the process that writes to the store.

    It indexes new documents, merges and repairs indexes, and frees the space of deleted data.
    """

    def start(self) -> None:
        """Starts the background work. First finishes work that an earlier process has begun."""

    def close(self) -> bool:
        """Stops the background work, and waits a short time for the step that is running.

        Returns False if this step is still running afterwards. If the process then ends, the next
        start repeats the step.
        """


class Administration(Protocol):
    """Operations on a whole store, for operators.

    All operations except `restore` and `migrate` raise StoreMissing if the store does not exist.
    The operations raise StoreUnavailable if the store cannot be opened. An operation that an engine
    does not implement raises NotSupported. The message names the reason, or the tools of the
    engine's database that do the same.
    """

    def check(self) -> CheckReport:
        """Reads the whole store and reports each broken invariant. Repairs nothing."""

    def repair(self) -> CheckReport:
        """Repairs all data that is derived from the documents; reports the remaining problems.

        Needs exclusive access to the store. If the disk is full, raises StorageFull and leaves the
        store unchanged.
        """

    def backup(self, target: Path, progress: Progress) -> BackupReport:
        """Copies the store into the new folder `target`. The store may be in use.

        If the disk of `target` is full, raises StorageFull and leaves nothing in `target`.
        """

    def restore(self, source: Path, progress: Progress) -> BackupReport:
        """Creates the engine's store from the backup in `source`. The store must not exist yet.

        Returns the report that `backup` returned for this backup. If the disk is full, raises
        StorageFull and creates no store.
        """

    def vacuum(self) -> VacuumReport:
        """Frees the disk space of deleted documents; reports the store's size before and after.

        Needs exclusive access to the store. If the disk is full, raises StorageFull and leaves the
        store unchanged.
        """

    def migrate(self) -> MigrationReport:
        """Migrates the store's schema to this version of hrag. All services must be stopped.

        Creates the store if it does not exist. Raises NotSupported in an engine without migrations.
        """

    def reindex(self) -> Iterator[ReindexedCollection]:
        """Rebuilds the index of each collection from the collection's documents.

        The lexical index is rebuilt with the newest version of the collection's analyzer. An engine
        may skip collections whose index cannot be out of date. Each step of the iterator rebuilds
        the index of one collection. Searches use the old index until the new index is complete.
        Raises StorageFull if the disk is full. If a collection is damaged, first rebuilds the
        indexes of all other collections, and then raises DataLoss.
        """


class Engine(Protocol):
    """A storage engine for the store that the settings name.

    The store is opened when a method first needs it. A process that both writes and reads must open
    the writer before the reader, because the reader may share the store that the writer has opened.
    """

    @property
    def name(self) -> str:
        """The engine's name, as it is set in HRAG_ENGINE."""

    @property
    def location(self) -> str:
        """A text that says where the store is, for example its folder. Contains no secrets."""

    def writer(self, quota_of: QuotaOf = unlimited) -> Writer:
        """Opens the store for writing, or creates it if it does not exist. May be called once.

        Raises StoreUnavailable, or StorageFull if the store cannot be created.
        """

    def maintenance(self) -> Maintenance:
        """Returns the background work, which is not started yet. The writer must be open."""

    def reader(self) -> Reader:
        """Opens the store for searching. This process or another process may write to it meanwhile.

        Raises StoreMissing if the store does not exist yet, or StoreUnavailable if it cannot be
        opened.
        """

    def administration(self) -> Administration:
        """Returns the operations for operators on the whole store, such as check and backup.

        The operations open the store themselves if it is not open.
        """

    def require_store(self) -> None:
        """Raises StoreUnavailable if the opened store can no longer be written to.

        Health checks call this method often; it takes microseconds. If writing is impossible,
        searches may still succeed.
        """

    def close(self) -> None:
        """Closes all that the engine has opened. `Maintenance.close` must be called before."""
