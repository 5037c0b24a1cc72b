"""The reports that the commands of operators return, such as `hrag check` and `hrag backup`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check of a store.

    The counts are those of the collections, documents, leaves and segments that were read. Each
    problem names the document, collection or file that it is about. An intact store has no
    problems.
    """

    collections: int
    documents: int
    leaves: int
    segments: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A description of a backup.

    `sequence` grows with each commit of the store, of any tenant. So it identifies the state of the
    store that the backup contains. `size_bytes` is the size of all files of the backup. `created`
    is the time of the backup in UTC, in the format ISO 8601.
    """

    documents: int
    sequence: int
    size_bytes: int
    created: str


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The size of the store's file in bytes, before and after a vacuum."""

    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """The version of a store's schema before and after a migration.

    `before` is 0 if there was no store before. `distributed_tables` is the count of tables that the
    migration has distributed over the nodes of a Citus cluster. `lacks_nodes` is True if the
    database has the extension Citus but no node for tables, so that nothing could be distributed.
    """

    before: int
    after: int
    distributed_tables: int = 0
    lacks_nodes: bool = False


@dataclass(frozen=True, slots=True)
class ReindexedCollection:
    """A collection whose index was rebuilt, and the count of leaves in the new index."""

    tenant_id: str
    name: str
    leaves: int
