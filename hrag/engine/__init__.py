"""The seam to storage: a writer that commits whole documents, a reader that searches.

The embedded engine (LMDB, hnswlib, `hrag_fast`) implements both. The seam lies where a
database with vectors could do the work too: a document with its tree and vectors passes
it one way; leaves, groups and passages the other. Methods raise `hrag.errors` only.
"""

from collections.abc import Container, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from hrag.deadline import NEVER, Deadline
from hrag.embedding import Vectors
from hrag.engine.documents import PreparedDocument, Summary
from hrag.engine.find import Describe, Vector
from hrag.errors import HragError
from hrag.filters import Filter
from hrag.ids import ChunkId
from hrag.passages.sentence_context import SentenceContext
from hrag.tree import ParsedText, Tree
from hrag.types import (
    Aggregation,
    ChosenSection,
    ChunkNode,
    Collection,
    CollectionSettings,
    DocumentInfo,
    Hierarchy,
    IndexStatus,
    IngestResult,
    Listing,
    Passage,
    ReaderStatus,
    StoreTotals,
    SummaryScope,
)

__all__ = [
    "Describe",
    "PreparedDocument",
    "Summary",
    "Vector",
]


class OpenCollection(Protocol):
    """A collection found by name; stays bound to it if the name is used anew."""

    @property
    def settings(self) -> CollectionSettings: ...


@dataclass(frozen=True, slots=True)
class Unsummarised:
    """A stored document that waits for its summaries.

    `version` tells it from what may be stored under its id later. `spent_tokens` is what
    the summaries of its collection have cost so far.
    """

    collection: OpenCollection
    version: int
    document_id: str
    title: str
    parsed: ParsedText
    tree: Tree
    spent_tokens: int


class Writer(Protocol):
    """Changes collections and documents. Each method commits durably before it returns."""

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        """Returns the collection and its sequence.

        Raises CollectionExists, or StorageQuotaExceeded if the tenant has as many as it may.
        """

    def delete_collection(self, tenant_id: str, name: str) -> int:
        """Returns the sequence of the deletion."""

    def collection(self, tenant_id: str, name: str) -> Collection: ...

    def collections(
        self, tenant_id: str, page_size: int, page_token: str
    ) -> Listing[Collection]: ...

    def open(self, tenant_id: str, name: str) -> OpenCollection: ...

    def unchanged(
        self, collection: OpenCollection, document_id: str, content_hash: str
    ) -> IngestResult | None:
        """The stored document's result if it is this one, else None."""

    def require_room(self, collection: OpenCollection, document_id: str, stored_bytes: int) -> None:
        """Raises StorageQuotaExceeded if a document of at least so many bytes has no room now.

        Asked before a document is embedded; `put` decides.
        """

    def wait_for_room(self, collection: OpenCollection, deadline: Deadline) -> None:
        """Waits, within the deadline, while the index lags too far behind what is stored."""

    def put(self, collection: OpenCollection, document: PreparedDocument) -> IngestResult:
        """Creates or replaces one document, whole or not at all.

        Raises StorageQuotaExceeded if its tenant may not have so much.
        """

    def put_many(
        self, documents: Sequence[tuple[OpenCollection, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        """The same for several in one commit, in order: each one's result or own error.

        What concerns all of them, such as StorageFull, is raised; then none is stored.
        """

    def delete(self, collection: OpenCollection, document_id: str) -> int:
        """Returns the sequence of the deletion."""

    def document(self, collection: OpenCollection, document_id: str) -> DocumentInfo: ...

    def document_with_text(
        self, collection: OpenCollection, document_id: str
    ) -> tuple[DocumentInfo, str]:
        """Both as of one moment."""

    def documents(
        self, collection: OpenCollection, page_size: int, page_token: str
    ) -> Listing[DocumentInfo]: ...

    def status(self, collection: OpenCollection) -> IndexStatus: ...

    def totals(self) -> StoreTotals: ...

    def next_unsummarised(
        self,
        embedder: str,
        after: OpenCollection | None = None,
        excluding: Container[int] = (),
    ) -> Unsummarised | None:
        """A document that waits for its summaries, None if there is none.

        In a collection that `embedder` is of, and in another than `after` if there is one
        in any: they take turns. None of the versions excluded.
        """

    def put_summaries(
        self,
        document: Unsummarised,
        summaries: Sequence[Summary],
        vectors: Vectors,
        tokens: int = 0,
    ) -> bool:
        """Stores a document's summaries; False if it has changed or gone meanwhile.

        The first is of the whole document, the others of its sections, in order. None at
        all where it is not worth one. `vectors` is `float32[len(summaries), dimension]`,
        `tokens` what they have cost, which counts as long as the collection lives.
        """


class Leaves(Protocol):
    """Leaves that a search found, with their scores; opaque to the caller."""

    @property
    def complete(self) -> bool:
        """Whether every leaf of the snapshot is among them."""

    @property
    def exact(self) -> bool:
        """Whether no other leaf of the snapshot is nearer for certain."""

    def __len__(self) -> int:
        """How many they are."""


class Groups(Protocol):
    """Leaves grouped by the chunk that stands for them, best first; opaque to the caller."""

    def __len__(self) -> int: ...

    def reaching(self, score: float) -> "Groups":
        """Those that have this score or a better one."""


class Snapshot(Protocol):
    """One collection as it stood at one change, for the length of one call."""

    @property
    def settings(self) -> CollectionSettings: ...

    @property
    def sequence(self) -> int: ...

    @property
    def leaf_count(self) -> int:
        """How many leaves a search can find."""

    def filtered(self, filter: Filter, deadline: Deadline = NEVER) -> "Snapshot":
        """The same snapshot, in which a search finds only leaves of documents that pass.

        The filter has been checked. Raises DeadlineExceeded.
        """

    def summary_first(self, query: Vector, count: int, scope: SummaryScope) -> "Snapshot":
        """The same snapshot, in which a search finds only leaves of some sections.

        Of those whose summaries are nearest to the query, `count` at most. With
        SummaryScope.DOCUMENTS they are sections of the `count` documents whose summaries
        are nearest. The reader was asked for summaries.
        """

    @property
    def sections(self) -> tuple[ChosenSection, ...]:
        """Those that `summary_first` has chosen, best first."""

    def search(self, query: Vector, count: int) -> Leaves:
        """The `count` leaves nearest to `query`, `float32[dimension]` of unit length."""

    def climb(self, leaves: Leaves, level: int, aggregation: Aggregation) -> Groups:
        """Groups leaves by their ancestor at `level`, scored and ordered."""

    def auto_merge(
        self, leaves: Leaves, level: int, ratio: float, aggregation: Aggregation
    ) -> Groups:
        """Groups leaves by the chunk, at `level` at most, of which enough matched.

        A chunk takes its children's place where at least `ratio` of them stand for
        leaves, and two at least unless it has but one; none of the chunks lies inside
        another.
        """

    def passages(
        self,
        groups: Groups,
        limit: int,
        token_budget: int,
        *,
        merge_adjacent: bool = False,
        cut_last: bool = False,
    ) -> tuple[Passage, ...]:
        """Reads the best groups; a budget of 0 tokens is none.

        `merge_adjacent` joins those of one document that overlap or touch, until one more
        would be apart from `limit` others. `cut_last` ends with the first that does not
        fit, of which it takes the sentences that do.
        """

    def encoded_passages(
        self,
        groups: Groups,
        limit: int,
        token_budget: int,
        describe: Describe,
        *,
        merge_adjacent: bool = False,
        cut_last: bool = False,
    ) -> tuple[bytes, ...]:
        """The same passages, each as a message hrag.v1.SearchResponse that holds it alone.

        `describe` gives those fields of hrag.v1.Chunk that are the document's own; what it
        gives may be kept for the document's other chunks.
        """

    def stretches(self, groups: Groups, limit: int, margin: int) -> tuple[SentenceContext, ...]:
        """The best groups' chunks with `margin` sentences on either side."""

    def chunk(self, chunk_id: ChunkId) -> ChunkNode: ...

    def hierarchy(self, chunk_id: ChunkId, depth: int, *, content: bool) -> Hierarchy: ...


class Reader(Protocol):
    """Opens snapshots that hold every change acknowledged before."""

    def snapshot(
        self, tenant_id: str, collection: str, *, summaries: bool = False
    ) -> AbstractContextManager[Snapshot]:
        """Raises CollectionNotFound and, with `summaries`, NoSummaries."""

    def settings(self, tenant_id: str, collection: str) -> CollectionSettings: ...

    def sequence(self) -> int:
        """The store's last change."""

    def status(self) -> ReaderStatus: ...

    def close(self) -> None: ...
