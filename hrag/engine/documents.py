"""Documents as engines take and return them.

Knows nothing of any engine. Vectors are `float32` rows of unit length.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hrag import canonical_json
from hrag.embedding import Vectors
from hrag.tree import ParsedText, Tree
from hrag.types import CollectionSettings, IngestResult


@dataclass(frozen=True, slots=True)
class CollectionHandle:
    """A collection that was opened by name.

    A `collection_id` is never reused, so a handle of a deleted collection does not refer to
    a new collection with the same name.
    """

    tenant_id: str
    name: str
    collection_id: int
    settings: CollectionSettings


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document that is ready to be committed.

    `content_hash` covers everything that the client sent; equal hashes mean UNCHANGED.
    `vectors` is `float32[leaves, dimension]`, in order of the tree's leaves.
    `metadata_json` is the canonical JSON of `metadata`, made here unless it is given.
    """

    document_id: str
    title: str
    source: str
    mime_type: str
    metadata: Mapping[str, Any]
    content_hash: str
    parsed: ParsedText
    tree: Tree
    vectors: Vectors
    metadata_json: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not self.metadata_json:
            object.__setattr__(self, "metadata_json", canonical_json.encode(self.metadata))


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a document has to be ingested, and into which collection.

    `unchanged` is the stored document's result if it has the same content hash, else None.
    """

    collection: CollectionHandle
    unchanged: IngestResult | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A text, not blank, that summarises the given leaves of its document."""

    text: str
    leaves: range


@dataclass(frozen=True, slots=True)
class DocumentSummaries:
    """A document's summaries: first that of the whole document, then those of its sections.

    Empty if the document is too short to be summarised. `vectors` is
    `float32[len(summaries), dimension]`.
    """

    summaries: tuple[Summary, ...]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A whole stored document, which another store can take without embedding it again.

    `summaries` is None if they are not written yet or the collection has none.
    """

    document: PreparedDocument
    summaries: DocumentSummaries | None = None


@dataclass(frozen=True, slots=True)
class Unsummarised:
    """A stored document whose summaries are not written yet.

    `version` distinguishes it from later documents with its id. `spent_tokens` counts the
    tokens that the summaries of its collection have cost so far.
    """

    collection: CollectionHandle
    version: int
    document_id: str
    title: str
    parsed: ParsedText
    tree: Tree
    spent_tokens: int
