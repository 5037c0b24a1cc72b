"""The seam to storage: what an engine must do, the values that cross it, and the door to it.

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
from hrag.engine.factory import open_engine
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
from hrag.engine.reports import BackupReport, CheckReport, ReindexedCollection, VacuumReport

__all__ = [
    "Administration",
    "Admission",
    "BackupReport",
    "CheckReport",
    "CollectionHandle",
    "DocumentSummaries",
    "EncodingSnapshot",
    "Engine",
    "FindRequest",
    "Found",
    "Fusion",
    "Maintenance",
    "PassageFields",
    "PreparedDocument",
    "Progress",
    "Reader",
    "ReindexedCollection",
    "Snapshot",
    "StoredDocument",
    "Summary",
    "Unsummarised",
    "VacuumReport",
    "Vector",
    "Writer",
    "open_engine",
]
