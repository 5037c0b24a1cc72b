"""The interface of storage engines: protocols, the values they exchange, and `open_engine`.

Methods of engines raise only errors of `hrag.errors`.
"""

from hrag.engine.engine_documents import (
    Admission,
    CollectionHandle,
    DocumentSummaries,
    Exported,
    PreparedDocument,
    StoredDocument,
    Summary,
    UnreadableDocument,
    Unsummarised,
)
from hrag.engine.engine_factory import open_engine
from hrag.engine.find import FindRequest, Found, Fusion, PassageFields, Vector
from hrag.engine.protocols import (
    Administration,
    EncodingSnapshot,
    Engine,
    Maintenance,
    Progress,
    Reader,
    Snapshot,
    Writer,
)
from hrag.engine.reports import (
    BackupReport,
    CheckReport,
    MigrationReport,
    ReindexedCollection,
    VacuumReport,
)

__all__ = [
    "Administration",
    "Admission",
    "BackupReport",
    "CheckReport",
    "CollectionHandle",
    "DocumentSummaries",
    "EncodingSnapshot",
    "Engine",
    "Exported",
    "FindRequest",
    "Found",
    "Fusion",
    "Maintenance",
    "MigrationReport",
    "PassageFields",
    "PreparedDocument",
    "Progress",
    "Reader",
    "ReindexedCollection",
    "Snapshot",
    "StoredDocument",
    "Summary",
    "UnreadableDocument",
    "Unsummarised",
    "VacuumReport",
    "Vector",
    "Writer",
    "open_engine",
]
