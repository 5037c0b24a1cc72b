"""The seam to storage: a writer that commits whole documents, a reader that searches.

The embedded engine (LMDB, hnswlib, `hrag_fast`) implements both. Methods raise
`hrag.errors` only.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Protocol

from hrag.deadline import Deadline
from hrag.embedding import Vectors
from hrag.engine.documents import PreparedDocument, Summary
from hrag.engine.find import Describe, FindRequest, Found, Vector
from hrag.engine.protocols import EncodingSnapshot, Reader, Snapshot
from hrag.errors import HragError
from hrag.tree import ParsedText, Tree
from hrag.types import (
    Collection,
    CollectionSettings,
    DocumentInfo,
    IndexStatus,
    IngestResult,
    Listing,
    StoreTotals,
)

__all__ = [
    "Describe",
    "EncodingSnapshot",
    "FindRequest",
    "Found",
    "PreparedDocument",
    "Reader",
    "Snapshot",
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
