"""Checks, migrates and reindexes a store in PostgreSQL.

For all other administration, for example backups, operators use the tools of PostgreSQL.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.admin.reindex import reindex
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import check_version, migrate
from hrag.engine.protocols import Progress
from hrag.engine.reports import (
    BackupReport,
    CheckReport,
    MigrationReport,
    ReindexedCollection,
    VacuumReport,
)
from hrag.values.errors import NotSupported


class PostgresAdministration:
    """Checks, migrates and reindexes a store.

    Implements `hrag.engine.protocols.Administration`. All methods except `check` and `migrate`
    raise NotSupported, with a message that says what operators do instead.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def check(self) -> CheckReport:
        """Checks the whole store; each collection is read in a separate snapshot."""
        with self._database.read() as connection:
            check_version(connection)
        return check(self._database)

    def migrate(self) -> MigrationReport:
        """Creates the schema, or migrates it to the newest version."""
        return migrate(self._database)

    def repair(self) -> CheckReport:
        """Raises NotSupported.

        A repair is not needed: a transaction writes a document together with all data that is
        derived from it, so derived data cannot be out of date.
        """
        _refuse("restore a backup, or ingest the documents that `hrag check` names")

    def backup(self, target: Path, progress: Progress) -> BackupReport:  # noqa: ARG002
        """Raises NotSupported, because pg_basebackup or pg_dump makes backups of the store."""
        _refuse("use pg_basebackup with WAL archiving, or pg_dump")

    def restore(self, source: Path, progress: Progress) -> BackupReport:  # noqa: ARG002
        """Raises NotSupported, because the tools of PostgreSQL restore backups of the store."""
        _refuse("use pg_restore, or recover a base backup")

    def vacuum(self) -> VacuumReport:
        """Raises NotSupported, because PostgreSQL itself frees the space of deleted rows."""
        _refuse("use autovacuum, or VACUUM")

    def reindex(self) -> Iterator[ReindexedCollection]:
        """Rebuilds the lexical index of each collection whose analyzer has a newer version.

        Yields a report on each of these collections. Other collections are not changed, because a
        transaction writes a document together with its terms, so a lexical index cannot be out of
        date. The HNSW indexes are not rebuilt either: REINDEX INDEX CONCURRENTLY on the indexes in
        the schema hrag_homes does that.
        """
        with self._database.read() as connection:
            check_version(connection)
        yield from reindex(self._database)


def _refuse(advice: str) -> NoReturn:
    """Raises NotSupported; `advice` says what operators do instead."""
    raise NotSupported(f"hrag cannot do this for a store in PostgreSQL: {advice}")
