"""The embedded engine: keeps a store on a local disk, and searches it within this process.

The store consists of LMDB's file and of segments. Segments are searched with hnswlib and
`hrag_fast`.

A process may open an LMDB environment only once. So writer, reader and maintenance share one open
store.
"""

import structlog

from hrag.config import EngineSettings
from hrag.engine.embedded.admin.administration import EmbeddedAdministration
from hrag.engine.embedded.maintenance.worker import MaintenanceWorker
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.store.environment import Store, open_for_reading, open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.values.quotas import QuotaOf, unlimited

_log = structlog.get_logger()


class EmbeddedEngine:
    """An engine that stores its data in a local folder.

    Implements `hrag.engine.protocols.Engine`.
    """

    name = "embedded"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._store: Store | None = None
        self._worker: MaintenanceWorker | None = None
        self._readers: list[EmbeddedReader] = []

    @property
    def store(self) -> Store | None:
        """The open store. None before the first writer or reader is opened, and after `close`."""
        return self._store

    @property
    def location(self) -> str:
        """The absolute path of the store's folder."""
        return str(self._settings.data_dir.absolute())

    def writer(self, quota_of: QuotaOf = unlimited) -> EmbeddedWriter:
        """Opens the store for writing and returns a writer.

        `quota_of` returns the quota of a tenant. Raises RuntimeError if this engine already has a
        writer or a reader.
        """
        if self._store is not None:
            raise RuntimeError(
                "this engine has opened its store already; open the writer once, before any reader"
            )
        settings = self._settings
        self._store = open_for_writing(
            settings.data_dir, settings.disk_reserve_bytes, upgrades=True
        )
        self._worker = MaintenanceWorker(self._store, settings.segment_min_leaves)
        return EmbeddedWriter(self._store, self._worker, quota_of=quota_of)

    def maintenance(self) -> MaintenanceWorker:
        """Returns the worker that builds and merges segments of the store in the background.

        Raises RuntimeError if the engine has no writer.
        """
        if self._worker is None:
            raise RuntimeError("maintenance needs the engine's writer; open the writer first")
        return self._worker

    def reader(self) -> EmbeddedReader:
        """Returns a reader. If this engine has no open store yet, opens the store for reading."""
        if self._store is None:
            self._store = open_for_reading(self._settings.data_dir)
        reader = EmbeddedReader(
            self._store,
            self._settings.memory_bytes,
            vector_budget_bytes=self._settings.vector_memory_bytes,
        )
        self._readers.append(reader)
        return reader

    def administration(self) -> EmbeddedAdministration:
        """Returns the commands of operators, such as check and backup, on the engine's store.

        If this engine has the store open, check and backup use the open store. All other commands
        open the store themselves.
        """
        return EmbeddedAdministration(self._settings, self._store)

    def require_store(self) -> None:
        """Raises StoreUnavailable if the folder of the open store was moved, replaced or removed.

        Implements `Engine.require_store`.
        """
        if self._store is not None:
            self._store.require_place()

    def close(self) -> None:
        """Stops readers and maintenance, then closes the store.

        If maintenance does not stop in time, the store stays open and a warning is logged. Closing
        the store would unmap memory that the maintenance thread still reads.
        """
        while self._readers:
            self._readers.pop().close()
        if self._worker is not None and not self._worker.close():
            _log.warning("store_left_open", problem="a segment is still being built")
            return
        if self._store is not None:
            self._store.close()
        self._store = self._worker = None
