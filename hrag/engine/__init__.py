"""How does hrag use a storage engine, and which values does an engine receive and return?

`open_engine` returns an engine. Methods of engines raise only errors of `hrag.errors`.
"""

from hrag.engine.engine_documents import (
    CollectionHandle,
    DamagedDocument,
    DocumentSummaries,
    ExportedDocument,
    IngestDecision,
    PreparedDocument,
    StoredDocument,
    Summary,
    Unsummarised,
)
from hrag.engine.engine_factory import open_engine
from hrag.engine.find import (
    VALUES,
    Encoded,
    FindRequest,
    FindResult,
    Fusion,
    PassageFields,
    PassageForm,
    RankedChunk,
    RankedChunks,
    ResultForm,
    Values,
    Vector,
)
from hrag.engine.protocols import (
    Administration,
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
    "VALUES",
    "Administration",
    "BackupReport",
    "CheckReport",
    "CollectionHandle",
    "DamagedDocument",
    "DocumentSummaries",
    "Encoded",
    "Engine",
    "ExportedDocument",
    "FindRequest",
    "FindResult",
    "Fusion",
    "IngestDecision",
    "Maintenance",
    "MigrationReport",
    "PassageFields",
    "PassageForm",
    "PreparedDocument",
    "Progress",
    "RankedChunk",
    "RankedChunks",
    "Reader",
    "ReindexedCollection",
    "ResultForm",
    "Snapshot",
    "StoredDocument",
    "Summary",
    "Unsummarised",
    "VacuumReport",
    "Values",
    "Vector",
    "Writer",
    "open_engine",
]
