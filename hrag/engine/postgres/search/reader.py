"""The reader of the PostgreSQL engine; it opens snapshots, each of which is a transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from hrag.engine.engine_documents import ExportedDocument
from hrag.engine.postgres.search import document_export
from hrag.engine.postgres.search.snapshot import PostgresSnapshot
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.opened_collection import open_collection, open_summaries
from hrag.engine.postgres.store.queries import aliases_of
from hrag.values.collections import Alias, Collection
from hrag.values.deadline import NEVER, Deadline
from hrag.values.status import ReaderStatus

_SEQUENCE = "SELECT sequence FROM hrag.tenants WHERE tenant_id = %s"


class PostgresReader:
    """Opens snapshots of collections.

    If the reader is connected to a replica, a snapshot has the state of the replica, which may be
    older than the state of the primary.

    Implements `hrag.engine.Reader`.
    """

    def __init__(self, database: PostgresDatabase) -> None:
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
        """Opens a snapshot of a collection.

        Implements `hrag.engine.Reader.snapshot`.
        """
        with self._database.read(deadline) as connection:
            opened = open_collection(connection, tenant_id, collection)
            summary_collection = open_summaries(connection, opened) if summaries else None
            yield PostgresSnapshot(connection, opened, summary_collection, deadline)

    def sequence(self, tenant_id: str) -> int:
        """Returns the sequence number of the tenant's last change; 0 before the first change."""
        with self._database.read() as connection:
            row = connection.execute(_SEQUENCE, (tenant_id,)).fetchone()
        return row[0] if row else 0

    def collections(self) -> Iterator[Collection]:
        """Yields the collections of all tenants, in order of tenant and name."""
        return iter(document_export.collections(self._database))

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns the tenant's aliases in order of name."""
        with self._database.read() as connection:
            return tuple(
                Alias(name, target) for name, _, target in aliases_of(connection, tenant_id)
            )

    def export(self, tenant_id: str, collection: str) -> Iterator[ExportedDocument]:
        """Yields all documents of a collection.

        Implements `hrag.engine.Reader.export`.
        """
        return document_export.documents(self._database, tenant_id, collection)

    def status(self) -> ReaderStatus:
        """Returns a status whose lag is 0 s.

        The lag is the time for which changes wait until a background thread applies them. This
        reader needs no such thread, because searches read the tables of the database.
        """
        return ReaderStatus(lag_s=0.0)

    def preload(self) -> None:
        """Does nothing, because PostgreSQL itself caches the pages that searches read."""

    def close(self) -> None:
        """Does nothing, because the engine closes the connections to the database."""
