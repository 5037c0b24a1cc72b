"""Values that cross the seam to storage: documents on their way in and out.

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
    """A collection found by name.

    `collection_id` is never used twice, so a handle stays bound to its collection if that
    is deleted and the name is given to another.
    """

    tenant_id: str
    name: str
    collection_id: int
    settings: CollectionSettings


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to commit.

    `content_hash` covers all that the client sent; equal hashes mean UNCHANGED.
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

    `unchanged` is the stored document's result where it equals the one announced, else None.
    """

    collection: CollectionHandle
    unchanged: IngestResult | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A text, not blank, to be found by, and the leaves of its document it stands for."""

    text: str
    leaves: range


@dataclass(frozen=True, slots=True)
class DocumentSummaries:
    """A document's summaries: that of the whole first, then those of its sections, in order.

    Empty where the document is not worth a summary. `vectors` is
    `float32[len(summaries), dimension]`.
    """

    summaries: tuple[Summary, ...]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A whole document as it is stored: enough to store it elsewhere without embedding again.

    `summaries` is None where they have not been written yet, or the collection has none.
    """

    document: PreparedDocument
    summaries: DocumentSummaries | None = None


@dataclass(frozen=True, slots=True)
class Unsummarised:
    """A stored document that waits for its summaries.

    `version` tells it from what may be stored under its id later. `spent_tokens` is what
    the summaries of its collection have cost so far.
    """

    collection: CollectionHandle
    version: int
    document_id: str
    title: str
    parsed: ParsedText
    tree: Tree
    spent_tokens: int
