"""The seam to storage: what an engine must do, and the values that cross it.

Methods raise `hrag.errors` only.
"""

from hrag.engine.documents import (
    Admission,
    CollectionHandle,
    DocumentSummaries,
    PreparedDocument,
    StoredDocument,
    Summary,
    Unsummarised,
)
from hrag.engine.find import Describe, FindRequest, Found, Vector
from hrag.engine.protocols import EncodingSnapshot, Reader, Snapshot, Writer

__all__ = [
    "Admission",
    "CollectionHandle",
    "Describe",
    "DocumentSummaries",
    "EncodingSnapshot",
    "FindRequest",
    "Found",
    "PreparedDocument",
    "Reader",
    "Snapshot",
    "StoredDocument",
    "Summary",
    "Unsummarised",
    "Vector",
    "Writer",
]
