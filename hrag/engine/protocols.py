"""What an engine must do: the protocols that services, commands and tests rely on.

The seam lies where a database with vectors could do the work too: whole documents pass it
one way, whole searches the other. Methods raise `hrag.errors` only. Nothing outside
`hrag.engine` names an engine's own modules; `hrag.engine.open_engine` is the door.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hrag.engine.engine_documents import (
    Admission,
    CollectionHandle,
    DocumentSummaries,
    Exported,
    PreparedDocument,
    StoredDocument,
    Unsummarised,
)
from hrag.engine.find import FindRequest, Found, PassageFields
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
from hrag.values.search import Passage
from hrag.values.status import IndexStatus, ReaderStatus, StoreTotals

Progress = Callable[[str], None]
"""Receives a line that describes the current step."""


class Writer(Protocol):
    """Changes collections and documents. Each method commits durably before it returns.

    With the handle of a deleted collection, methods raise CollectionNotFound, except
    `wait_for_capacity` and `put_summaries`.

    Wherever a method takes a collection's name, it takes an alias too. What it returns has the
    collection's own name.

    Sequences count per tenant: the first change of a tenant has the number 1, each further
    change the next one, also after its last collection was deleted.
    """

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        """Returns the collection and the sequence of its creation.

        Raises CollectionExists if a collection or an alias has the name, or
        StorageQuotaExceeded if the tenant has its full number of collections.
        """

    def delete_collection(self, tenant_id: str, name: str) -> int:
        """Returns the sequence of the deletion.

        Raises CollectionNotFound, or CollectionHasAliases.
        """

    def set_alias(self, tenant_id: str, alias: str, collection: str) -> AliasChange:
        """Makes `alias` a name of the collection, in one commit; it may name another one now.

        An alias of an alias is one of its collection. Nothing is written if it is so already.
        Raises CollectionNotFound, CollectionExists if a collection has the name, or
        StorageQuotaExceeded if the tenant has MAX_ALIASES already.
        """

    def delete_alias(self, tenant_id: str, alias: str) -> int:
        """Returns the sequence of the deletion, or raises AliasNotFound."""

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns the tenant's aliases in order of name."""

    def collection(self, tenant_id: str, name: str) -> Collection:
        """Returns a collection, or raises CollectionNotFound."""

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        """Returns collections in order of name, beginning after the name `page_token`."""

    def open(self, tenant_id: str, name: str) -> CollectionHandle:
        """Returns a handle of the collection, or raises CollectionNotFound."""

    def admit(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        content_hash: str,
        stored_bytes: int = 1,
    ) -> Admission:
        """Decides in one read whether a document has to be ingested, before it is.

        An empty `content_hash` equals no stored one. `stored_bytes` is a lower bound of what
        the document will take; `put` has the last word. Raises CollectionNotFound, or
        StorageQuotaExceeded if the document would exceed the tenant's quota now.
        """

    def wait_for_capacity(self, collection: CollectionHandle, deadline: Deadline) -> None:
        """Backpressure: waits while indexing is far behind the writes; raises DeadlineExceeded."""

    def put(self, collection: CollectionHandle, document: PreparedDocument) -> IngestResult:
        """Creates or replaces one document, whole or not at all.

        A document with the stored `content_hash` is UNCHANGED. Raises CollectionNotFound,
        InvalidArgument or TooLarge if tree or vectors do not fit the collection,
        StorageQuotaExceeded, or StorageFull.
        """

    def put_many(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        """Puts several documents in one commit; returns each one's result or its own error.

        Raises what concerns all of them, such as StorageFull; then none is stored.
        """

    def put_stored(self, collection: CollectionHandle, stored: StoredDocument) -> IngestResult:
        """Puts a document of another store together with its summaries, in one commit.

        Raises as `put` does, and InvalidArgument for summaries in a collection without.
        """

    def put_metadata(
        self,
        collection: CollectionHandle,
        document_id: str,
        sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        """Replaces the metadata and the source of a document, and of its summaries.

        Text, tree, vectors and index stay as they are. No content hash equals that of the
        document afterwards, so `put` replaces it. Raises DocumentNotFound, DocumentChanged
        unless the document has this `sequence`, StorageQuotaExceeded, or StorageFull.
        """

    def delete(self, collection: CollectionHandle, document_id: str) -> int:
        """Returns the sequence of the deletion, or raises DocumentNotFound."""

    def delete_matching(
        self, collection: CollectionHandle, filter: Filter, deadline: Deadline = NEVER
    ) -> Iterator[DocumentDeletion]:
        """Deletes the documents that pass the filter `given`, which has been checked, in steps.

        Each step commits a bounded number of deletions before it yields how many they were;
        the first may be of none. Deleted are documents that passed when the first step began,
        except those that were written since then; so none is deleted that does not pass at its
        deletion. Each deletion is a change of its own. Raises CollectionNotFound and, between
        two commits, DeadlineExceeded or Cancelled; what was committed stays deleted.
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
        """Returns a document, its text and the byte at which that ends, from one snapshot.

        Of a `part`, the text is as much from its start as `reply` allows. Raises
        DocumentNotFound, InvalidArgument for a part that the text does not have, and
        ReplyTooLarge for a whole text that is too long.
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
        """Returns documents in order of id, beginning after the id `page_token`.

        They are as many as `page_size` and `reply` allow, at least one. With the filter
        `given`, which has been checked, only documents that pass it. Raises DeadlineExceeded
        or Cancelled.
        """

    def count(
        self, collection: CollectionHandle, filter: Filter | None, deadline: Deadline = NEVER
    ) -> DocumentCount:
        """Counts the documents that pass the filter `given`, which has been checked; None: all.

        Raises CollectionNotFound, DeadlineExceeded or Cancelled.
        """

    def status(self, collection: CollectionHandle) -> IndexStatus:
        """Returns counts of one collection and its tenant's usage.

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
        """Returns a document whose summaries are not written yet, or None.

        Only collections with this `embedder` count. They take turns: a document of the
        collection `after` is returned only if no other collection has one. Versions in
        `excluding` are skipped. Raises UnreadableVersion for damage that can be skipped so.
        """

    def put_summaries(
        self, document: Unsummarised, summaries: DocumentSummaries, tokens: int = 0
    ) -> bool:
        """Stores a document's summaries; False if it was replaced or deleted meanwhile.

        `tokens` is what the chat model has read and written for them; it is added to the
        collection's total in either case, also for NO_VERSION. Raises InvalidArgument or
        StorageFull.
        """


class Snapshot(Protocol):
    """One collection as of one change, for the length of one call."""

    @property
    def name(self) -> str:
        """The collection's own name, also if it was opened by an alias."""

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""

    @property
    def sequence(self) -> int:
        """The sequence of the tenant's last change that the snapshot holds."""

    def find(self, request: FindRequest) -> Found[Passage]:
        """Returns what a search finds: all of a search except the embedding of its query.

        Raises DeadlineExceeded or Cancelled once the snapshot's deadline says so, and
        ReplyTooLarge before the passages are made.
        """

    def chunk(self, chunk_id: ChunkId, reply: ReplyLimit = UNLIMITED) -> ChunkNode:
        """Returns the chunk with the ids of its parent and children.

        Raises DocumentNotFound or ChunkNotFound, and ReplyTooLarge before the chunk is made.
        """

    def hierarchy(
        self, chunk_id: ChunkId, depth: int, *, content: bool, reply: ReplyLimit = UNLIMITED
    ) -> Hierarchy:
        """Returns the chunk with its relatives, `depth` levels down; raises as `chunk` does.

        `content` fills in the text of the relatives too.
        """


@runtime_checkable
class EncodingSnapshot(Snapshot, Protocol):
    """A snapshot that can encode passages itself: an optional, faster way to send them."""

    def find_encoded(self, request: FindRequest, fields: PassageFields) -> Found[bytes]:
        """Returns what `find` does; each passage is an encoded hrag.v1.SearchResponse of its own.

        What `fields` encodes of a document may be kept for its other chunks.
        """


class Reader(Protocol):
    """Opens snapshots that hold every change acknowledged before.

    A collection may be named by an alias, which is resolved in the snapshot that is opened.
    """

    def snapshot(
        self,
        tenant_id: str,
        collection: str,
        *,
        summaries: bool = False,
        deadline: Deadline = NEVER,
    ) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot; with `summaries`, one that SUMMARY_FIRST can search.

        Work on the snapshot ends with DeadlineExceeded once the deadline has passed. Raises
        CollectionNotFound and, with `summaries`, NoSummaries.
        """

    def sequence(self, tenant_id: str) -> int:
        """Returns the sequence of the tenant's last change, 0 before the first."""

    def collections(self) -> Iterator[Collection]:
        """Yields every tenant's collections, by tenant and name.

        With `aliases` and `export`, this is enough to move a store.
        """

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns the tenant's aliases in order of name."""

    def export(self, tenant_id: str, collection: str) -> Iterator[Exported]:
        """Yields every document of a collection by id, each as of when it is read.

        Ids are in order of their bytes. A damaged document is yielded as unreadable, and those
        behind it follow. Holds no transaction between two documents. Raises CollectionNotFound.
        """

    def status(self) -> ReaderStatus:
        """Returns how far it has followed the store, and what it has in memory."""

    def preload(self) -> None:
        """Loads what searches would otherwise have to wait for, as far as memory allows."""

    def close(self) -> None:
        """Releases the store."""


class Maintenance(Protocol):
    """The background work for a writer: indexing, merging, repair, reclaiming."""

    def start(self) -> None:
        """Starts the work, first what an earlier process left unfinished."""

    def close(self) -> bool:
        """Stops soon. Returns False if some work still runs; the next start repeats it."""


class Administration(Protocol):
    """Work on a whole store, for operators.

    Raises StoreMissing or StoreUnavailable where there is no store, or it cannot be used
    so. An engine whose database has its own means for one of these raises NotSupported,
    whose message names them.
    """

    def check(self) -> CheckReport:
        """Reads everything and reports each broken invariant; never repairs one."""

    def repair(self) -> CheckReport:
        """Makes again what follows from the documents; returns what is still wrong.

        Needs the store exclusively. Raises StorageFull; then the store is as before.
        """

    def backup(self, target: Path, progress: Progress) -> BackupReport:
        """Copies the store, in use or not, into the new folder `target`.

        Raises StorageFull; then nothing is left in `target`.
        """

    def restore(self, source: Path, progress: Progress) -> BackupReport:
        """Makes a store of the backup in `source`, where there is none.

        Returns the report of that backup. Raises StorageFull; then there is still no store.
        """

    def vacuum(self) -> VacuumReport:
        """Gives the disk back what deleted documents took; needs the store exclusively.

        Raises StorageFull; then the store is as before.
        """

    def migrate(self) -> MigrationReport:
        """Brings the store's schema to this version of hrag, with all services stopped.

        Creates the store if there is none.
        """

    def reindex(self) -> Iterator[ReindexedCollection]:
        """Rebuilds each collection's index from its documents, one at each step of the iterator.

        The old one serves until then. Raises StorageFull, and DataLoss once others are rebuilt.
        """


class Engine(Protocol):
    """A store, given by its settings. Opens nothing until a method does.

    A process that writes and reads opens the writer first: the reader may share what it
    has opened.
    """

    @property
    def name(self) -> str:
        """Its value of HRAG_ENGINE."""

    @property
    def location(self) -> str:
        """Where the store is, for people; without secrets."""

    def writer(self, quota_of: QuotaOf = unlimited) -> Writer:
        """Opens the store for writing, once, and creates it if there is none.

        Raises StoreUnavailable, or StorageFull if it cannot be created.
        """

    def maintenance(self) -> Maintenance:
        """Returns the maintenance of the opened writer's store; not started yet."""

    def reader(self) -> Reader:
        """Opens the store for searching; this process or another may be writing to it.

        Raises StoreMissing while there is no store, or StoreUnavailable.
        """

    def administration(self) -> Administration:
        """Opens nothing by itself: each of its methods opens what it needs."""

    def require_store(self) -> None:
        """Raises StoreUnavailable if what it has opened can no longer be written to.

        For health checks: takes microseconds, and searches may still be answered.
        """

    def close(self) -> None:
        """Closes everything that it has opened; maintenance has been closed before."""
