"""A database for each test, opened as the engine opens it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.store.connection_pool import ConnectionTimes
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.servers.postgres_server import PostgresServer
from tests.support.until import PATIENCE_S

# A busy machine may let callers and health checks wait longer than by default.
_PATIENT = {"times": ConnectionTimes(max_wait_s=PATIENCE_S, check_s=PATIENCE_S)}


@pytest.fixture
def opened() -> Iterator[Callable[..., PostgresDatabase]]:
    """A function that opens a database by its DSN. The databases are closed when the test ends."""
    with ExitStack() as databases:

        def open_database(dsn: str, connections: int = 4, **options: Any) -> PostgresDatabase:
            database = PostgresDatabase(dsn, connections, "hrag-tests", **_PATIENT | options)
            return databases.enter_context(closing(database))

        yield open_database


@pytest.fixture
def database(postgres_dsn: str, opened: Callable[..., PostgresDatabase]) -> PostgresDatabase:
    """A database with an empty store."""
    return opened(postgres_dsn)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop, kill and freeze."""
    with closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def writer(postgres_dsn: str, opened: Callable[..., PostgresDatabase]) -> PostgresWriter:
    """A writer with connections for several threads."""
    return PostgresWriter(opened(postgres_dsn, 8, is_writer=True))


@pytest.fixture
def collection(writer: PostgresWriter) -> CollectionHandle:
    """The collection `c` of tenant `t`."""
    writer.create_collection("t", "c", collection_settings())
    return writer.open("t", "c")


@pytest.fixture
def in_home(database: PostgresDatabase) -> CollectionHandle:
    """The collection `c` of tenant `t`, which has one document and a home.

    A home is a table with an HNSW index for the leaves of a large collection.
    """
    writer = PostgresWriter(database)
    writer.create_collection("t", "c", collection_settings())
    collection = writer.open("t", "c")
    writer.put(collection, prepared("d", sentences(80)))
    worker = MaintenanceWorker(database, home_leaves=4)
    worker.maintain("t", collection.collection_id, every_leaf=True)
    return collection
