"""The operators' commands on an embedded store. See `hrag.engine.protocols.Administration`."""

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
from hrag.engine.embedded.store.queries import read_collection
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
    """Uses the store that its engine has open, if there is one; else opens what it needs."""

    def __init__(self, settings: EngineSettings, opened: Store | None = None) -> None:
        self._settings = settings
        self._opened = opened

    def check(self) -> CheckReport:
        """Opens the store read only, in a process of its own; services may be running."""
        if self._opened is not None:
            return check(self._opened)
        return check_apart(self._settings.data_dir)

    def repair(self) -> CheckReport:
        """Needs the store exclusively; see `admin.repair`."""
        return repair(self._settings.data_dir)

    def backup(self, target: Path, progress: Progress) -> BackupReport:
        """Opens the store read only; services may be running. See `admin.backup`."""
        with self._reading() as store:
            return backup.backup(store, target, progress)

    def restore(self, source: Path, progress: Progress) -> BackupReport:
        """Restores into the data folder, which must not hold a store; see `admin.backup`."""
        return backup.restore(source, self._settings.data_dir, progress)

    def vacuum(self) -> VacuumReport:
        """Needs the store exclusively; see `admin.vacuum`."""
        return vacuum.vacuum(self._settings.data_dir)

    def migrate(self) -> MigrationReport:
        """Is not needed: a writer upgrades the store when it opens it."""
        raise NotSupported(
            "an embedded store needs no migration: the indexer upgrades it when it opens it"
        )

    def reindex(self) -> Iterator[ReindexedCollection]:
        """Opens the store for writing; a retriever may run and loads the new segments.

        A collection with a damaged document keeps the segments that it has. Raises DataLoss that
        names all such documents once the others are done.
        """
        directory = self._settings.data_dir
        location.require_data(directory)
        damaged: list[str] = []
        with closing(open_for_writing(directory, self._settings.disk_reserve_bytes)) as store:
            collections = sorted(segment_build.all_collections(store))
            for collection in collections:
                try:
                    done = self._reindexed(store, collection)
                except DataLoss as error:
                    damaged.append(error.message)
                else:
                    yield done
            orphan_gc.OrphanCollector(store, grace_s=0).collect()
        if damaged:
            left = f"{len(damaged)} of {len(collections)} collections were not reindexed:"
            raise DataLoss("\n".join((left, *damaged)))

    def _reindexed(self, store: Store, collection: int) -> ReindexedCollection:
        with store.read() as txn:
            record = read_collection(store, txn, collection)
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
