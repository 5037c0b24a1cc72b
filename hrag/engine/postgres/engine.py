"""The PostgreSQL engine: all data is in one database, which any number of processes may use."""

from hrag.config import EngineSettings
from hrag.engine.postgres.admin.administration import PostgresAdministration
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import check_version, create_or_check
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.host.dsn import without_secrets
from hrag.values.quotas import QuotaOf, unlimited


class PostgresEngine:
    """An engine whose store is a PostgreSQL database.

    Implements `hrag.engine.protocols.Engine`.
    """

    name = "postgres"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._database: PostgresDatabase | None = None
        self._replicas: PostgresDatabase | None = None
        self._worker: MaintenanceWorker | None = None

    @property
    def location(self) -> str:
        """The DSN of the primary and, if the settings have one, the DSN of the replicas.

        Both are shown without secrets.
        """
        primary, replicas = self._settings.postgres_dsn, self._settings.postgres_read_dsn
        shown_primary = without_secrets(primary)
        return (
            f"{shown_primary}; read from {without_secrets(replicas)}" if replicas else shown_primary
        )

    def writer(self, quota_of: QuotaOf = unlimited) -> PostgresWriter:
        """Returns the writer; connects to the primary, and creates the store if it does not exist.

        Raises RuntimeError if the method is called twice.
        """
        if self._worker is not None:
            raise RuntimeError("the engine has already opened its writer")
        database = self._primary_database()
        create_or_check(database)
        self._worker = MaintenanceWorker(database, self._settings.postgres_home_leaves)
        return PostgresWriter(database, self._worker, quota_of)

    def maintenance(self) -> MaintenanceWorker:
        """Returns the maintenance worker, to which the writer reports its changes.

        Raises RuntimeError if `writer` was not called before.
        """
        if self._worker is None:
            raise RuntimeError("maintenance needs the engine's writer; open the writer first")
        return self._worker

    def reader(self) -> PostgresReader:
        """Returns a reader of the replicas if the settings name any, otherwise of the primary."""
        database = self._read_database()
        with database.read() as connection:
            check_version(connection)
        return PostgresReader(database)

    def administration(self) -> PostgresAdministration:
        """Returns the object with which operators check and migrate the store.

        Implements `hrag.engine.protocols.Engine.administration`.
        """
        return PostgresAdministration(self._primary_database())

    def require_store(self) -> None:
        """Raises StoreUnavailable if the primary or a replica does not answer.

        Checks only the servers that the engine uses. It uses the primary after `writer` or
        `administration` was called. After `reader` was called, it uses the replicas, or the primary
        if the settings name no replicas.

        Implements `hrag.engine.protocols.Engine.require_store`.
        """
        for database in (self._database, self._replicas):
            if database is not None:
                database.check()

    def close(self) -> None:
        """Stops maintenance, then closes all connections."""
        if self._worker is not None:
            self._worker.close()
        for database in (self._database, self._replicas):
            if database is not None:
                database.close()
        self._database = self._replicas = self._worker = None

    def _primary_database(self) -> PostgresDatabase:
        if self._database is None:
            settings = self._settings
            self._database = PostgresDatabase(
                settings.postgres_dsn, settings.postgres_connections, "hrag", is_writer=True
            )
        return self._database

    def _read_database(self) -> PostgresDatabase:
        settings = self._settings
        if not settings.postgres_read_dsn:
            return self._primary_database()
        if self._replicas is None:
            self._replicas = PostgresDatabase(
                settings.postgres_read_dsn, settings.postgres_connections, "hrag"
            )
        return self._replicas
