"""Implements the commands of operators for an embedded store, such as backup and repair."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hrag.config import EngineSettings
from hrag.engine.embedded.admin import backup, vacuum
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.admin.check_process import check_apart
from hrag.engine.embedded.admin.repair import repair
from hrag.engine.embedded.maintenance import orphan_gc, segment_build
from hrag.engine.embedded.store import location
from hrag.engine.embedded.store.environment import Store, open_for_reading, open_for_writing
from hrag.engine.protocols import Progress
from hrag.engine.reports import (
    BackupReport,
    CheckReport,
    MigrationReport,
    ReindexedCollection,
    VacuumReport,
)
from hrag.values.errors import DataLoss, NotSupported


class EmbeddedAdministration:
    """Checks, repairs, copies, vacuums and reindexes a store.

    Implements `hrag.engine.protocols.Administration`. `opened` is the store that the engine has
    open, or None. If it is not None, `check` and `backup` use this store. All other commands open
    the store themselves, in the folder `settings.data_dir`.
    """

    def __init__(self, settings: EngineSettings, opened: Store | None = None) -> None:
        self._settings = settings
        self._opened = opened

    def check(self) -> CheckReport:
        """Checks the store and returns a report on it. Services may be running.

        If the engine has the store open, checks it in this process. Otherwise a child process opens
        the store for reading and checks it.
        """
        if self._opened is not None:
            return check(self._opened)
        return check_apart(self._settings.data_dir)

    def repair(self) -> CheckReport:
        """Repairs the store and returns a report on the problems that remain.

        No other process may have the store open. The module `admin.repair` explains the steps.
        """
        return repair(self._settings.data_dir)

    def backup(self, target: Path, progress: Progress) -> BackupReport:
        """Copies the store into the new folder `target`. Services may be running.

        The module `admin.backup` explains the steps.
        """
        with self._reading() as store:
            return backup.backup(store, target, progress)

    def restore(self, source: Path, progress: Progress) -> BackupReport:
        """Restores the backup in `source` into the data folder, which must not contain a store.

        The module `admin.backup` explains the steps.
        """
        return backup.restore(source, self._settings.data_dir, progress)

    def vacuum(self) -> VacuumReport:
        """Replaces LMDB's file by a compact copy. No other process may have the store open."""
        return vacuum.vacuum(self._settings.data_dir)

    def migrate(self) -> MigrationReport:
        """Raises NotSupported, because an embedded store cannot change its schema version."""
        raise NotSupported(
            "the embedded engine has no migrations: it opens only stores of its own schema "
            "version; for a store in PostgreSQL, set HRAG_ENGINE=postgres and HRAG_POSTGRES_DSN"
        )

    def reindex(self) -> Iterator[ReindexedCollection]:
        """Builds the index of each collection again, and yields a report on each collection.

        Opens the store for writing. A retriever may be running; it loads the new segments. A
        collection with a damaged document is not reindexed and keeps its segments. After all other
        collections are reindexed, raises DataLoss with the errors of the damaged collections.
        """
        directory = self._settings.data_dir
        location.require_data(directory)
        damaged: list[str] = []
        with closing(open_for_writing(directory, self._settings.disk_reserve_bytes)) as store:
            collections = sorted(segment_build.all_collections(store))
            for collection in collections:
                try:
                    report = self._reindex_one(store, collection)
                except DataLoss as error:
                    damaged.append(error.message)
                else:
                    yield report
            orphan_gc.OrphanCollector(store, grace_s=0).collect()
        if damaged:
            summary = f"{len(damaged)} of {len(collections)} collections were not reindexed:"
            raise DataLoss("\n".join((summary, *damaged)))

    def _reindex_one(self, store: Store, collection: int) -> ReindexedCollection:
        with store.read() as txn:
            record = txn.collections.require(collection)
        with location.explained_errors(store.directory):
            leaves = segment_build.reindex(store, collection, self._settings.segment_min_leaves)
        return ReindexedCollection(record.tenant_id, record.name, leaves)

    @contextmanager
    def _reading(self) -> Iterator[Store]:
        if self._opened is not None:
            yield self._opened
            return
        with closing(open_for_reading(self._settings.data_dir)) as store:
            yield store
