"""The reader: snapshots of collections, each a transaction on a connection of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

from hrag.engine.engine_documents import Exported
from hrag.engine.postgres.search import document_export
from hrag.engine.postgres.search.snapshot import PostgresSnapshot
from hrag.engine.postgres.store.database import Database
from hrag.engine.postgres.store.opened_collection import open_collection, open_summaries
from hrag.engine.postgres.store.queries import aliases_of
from hrag.values.collections import Alias, Collection
from hrag.values.deadline import NEVER, Deadline
from hrag.values.status import ReaderStatus

_SEQUENCE = "SELECT sequence FROM hrag.tenants WHERE tenant_id = %s"


class PostgresReader:
    """See `hrag.engine.Reader`. On a replica, snapshots lag as far behind as the replica does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def snapshot(
        self,
        tenant_id: str,
        collection: str,
        *,
        summaries: bool = False,
        deadline: Deadline = NEVER,
    ) -> Iterator[PostgresSnapshot]:
        """See `hrag.engine.Reader.snapshot`."""
        with self._database.read(deadline) as connection:
            opened = open_collection(connection, tenant_id, collection)
            second = open_summaries(connection, opened) if summaries else None
            yield PostgresSnapshot(connection, opened, second, deadline)

    def sequence(self, tenant_id: str) -> int:
        """See `hrag.engine.Reader.sequence`."""
        with self._database.read() as connection:
            row = connection.execute(_SEQUENCE, (tenant_id,)).fetchone()
        return row[0] if row else 0

    def collections(self) -> Iterator[Collection]:
        """See `hrag.engine.Reader.collections`."""
        return iter(document_export.collections(self._database))

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """See `hrag.engine.Reader.aliases`."""
        with self._database.read() as connection:
            return tuple(Alias(name, of) for name, _, of in aliases_of(connection, tenant_id))

    def export(self, tenant_id: str, collection: str) -> Iterator[Exported]:
        """See `hrag.engine.Reader.export`."""
        return document_export.documents(self._database, tenant_id, collection)

    def status(self) -> ReaderStatus:
        """See `hrag.engine.Reader.status`."""
        return ReaderStatus(lag_s=0.0)

    def preload(self) -> None:
        """Does nothing: the database has its own cache."""

    def close(self) -> None:
        """Does nothing: the engine closes the database."""
