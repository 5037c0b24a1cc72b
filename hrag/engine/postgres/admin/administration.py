"""Work on a whole store in PostgreSQL: what its own tools do is left to them."""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.store.database import Database
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
    """See `hrag.engine.protocols.Administration`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def check(self) -> CheckReport:
        """Reads every collection in a snapshot of its own."""
        with self._database.read() as connection:
            check_version(connection)
        return check(self._database)

    def migrate(self) -> MigrationReport:
        """Creates the schema, or brings it to the newest version."""
        return migrate(self._database)

    def repair(self) -> CheckReport:
        """Not supported: every change is a transaction, so nothing falls out of step."""
        _leave_to("a restored backup, or ingesting the documents that `hrag check` names,")

    def backup(self, target: Path, progress: Progress) -> BackupReport:  # noqa: ARG002
        """Not supported."""
        _leave_to("pg_basebackup with WAL archiving, or pg_dump,")

    def restore(self, source: Path, progress: Progress) -> BackupReport:  # noqa: ARG002
        """Not supported."""
        _leave_to("pg_restore, or recovery of a base backup,")

    def vacuum(self) -> VacuumReport:
        """Not supported."""
        _leave_to("autovacuum, or VACUUM,")

    def reindex(self) -> Iterator[ReindexedCollection]:
        """Not supported."""
        _leave_to("REINDEX INDEX CONCURRENTLY on the indexes in the schema hrag_homes")


def _leave_to(means: str) -> NoReturn:
    raise NotSupported(f"a store in PostgreSQL has its database's own means: {means} does this")
