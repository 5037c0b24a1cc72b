"""The engine on PostgreSQL: everything is in the database, which any number of processes share."""

from hrag.config import EngineSettings
from hrag.engine.postgres.admin.administration import PostgresAdministration
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import Database
from hrag.engine.postgres.store.schema import check_version, create_or_check
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.host.dsn import without_secrets
from hrag.values.quotas import QuotaOf, unlimited


class PostgresEngine:
    """See `hrag.engine.protocols.Engine`."""

    name = "postgres"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._database: Database | None = None
        self._replicas: Database | None = None
        self._worker: MaintenanceWorker | None = None

    @property
    def location(self) -> str:
        """The database, and the replicas that are read from if the settings name any."""
        primary, replicas = self._settings.postgres_dsn, self._settings.postgres_read_dsn
        shown = without_secrets(primary)
        return f"{shown}; read from {without_secrets(replicas)}" if replicas else shown

    def writer(self, quota_of: QuotaOf = unlimited) -> PostgresWriter:
        """Connects to the primary, and creates the store if there is none; once per engine."""
        if self._worker is not None:
            raise RuntimeError("an engine opens its writer once")
        database = self._primary()
        create_or_check(database)
        self._worker = MaintenanceWorker(database, self._settings.postgres_home_leaves)
        return PostgresWriter(database, self._worker, quota_of)

    def maintenance(self) -> MaintenanceWorker:
        """Returns the worker to which the writer reports its changes."""
        if self._worker is None:
            raise RuntimeError("maintenance needs the engine's writer; open that first")
        return self._worker

    def reader(self) -> PostgresReader:
        """Reads from the replicas if the settings name any, else from the primary."""
        database = self._reading()
        with database.read() as connection:
            check_version(connection)
        return PostgresReader(database)

    def administration(self) -> PostgresAdministration:
        """See `hrag.engine.protocols.Engine.administration`."""
        return PostgresAdministration(self._primary())

    def require_store(self) -> None:
        """See `hrag.engine.protocols.Engine.require_store`."""
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

    def _primary(self) -> Database:
        if self._database is None:
            settings = self._settings
            self._database = Database(
                settings.postgres_dsn, settings.postgres_connections, "hrag", is_writer=True
            )
        return self._database

    def _reading(self) -> Database:
        settings = self._settings
        if not settings.postgres_read_dsn:
            return self._primary()
        if self._replicas is None:
            self._replicas = Database(
                settings.postgres_read_dsn, settings.postgres_connections, "hrag"
            )
        return self._replicas
