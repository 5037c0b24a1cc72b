"""Stores of both engines with the same documents, for benchmarks that compare the engines.

Documents are committed as the indexer commits them: about 512 leaves in a transaction. Both engines
sync every commit to the disk. Some benchmarks index all leaves at once after the commits, so that
indexing can be timed alone. In other benchmarks maintenance indexes during the commits, as in the
service.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

from threadpoolctl import threadpool_limits

from benchmarks import corpus
from benchmarks.report import seconds
from hrag.config import EngineSettings
from hrag.engine import CollectionHandle, Engine, PreparedDocument, Reader, Writer
from hrag.engine.postgres.indexes.homes import home_sizes, move_collection
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.opened_collection import open_by_id
from hrag.values.deadline import NEVER
from tests.support.servers.postgres_server import PostgresServer

# The settings that docs/operations/postgres.md recommends for a machine of 4 GB.
SERVER_SETTINGS: Mapping[str, str] = {
    "shared_buffers": "1GB",
    "effective_cache_size": "2GB",
    "maintenance_work_mem": "512MB",
    "max_parallel_maintenance_workers": "2",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_naptime": "15s",
    "jit": "off",
}

# Five documents have about 512 leaves, and the service commits about 512 leaves in a transaction.
_DOCUMENTS_AT_ONCE = 5
_CONNECTIONS = 4
_POLL_S = 0.05
_MAX_INDEX_S = 900.0
# A collection with more leaves gets a home, which is a separate table with an HNSW index.
_HOME_LEAVES: int = EngineSettings().postgres_home_leaves
# Maintenance does not index a tail of at most 256 leaves, because scanning it is cheap.
_SHORT_TAIL = 256


class Store(Protocol):
    """A store of one engine, empty or filled. One benchmark uses it at a time."""

    @property
    def name(self) -> str:
        """The engine's name, a value of HRAG_ENGINE."""

    @property
    def data_dir(self) -> Path:
        """The data folder of the services."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings with which a service opens the store."""

    def opened(self) -> AbstractContextManager[Engine]:
        """Opens the engine; the context manager closes it."""

    def index(self) -> Mapping[str, float]:
        """Indexes all leaves at once; returns the seconds of each step by the step's name."""

    def unindexed(self, writer: Writer, collection: CollectionHandle) -> int:
        """Returns the number of leaves that the running maintenance has yet to index.

        It is 0 when maintenance has finished.
        """


@dataclass(frozen=True, slots=True)
class EmbeddedStore:
    """A store of the embedded engine in a folder."""

    data_dir: Path
    name: str = field(default="embedded", init=False)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HRAG_ENGINE": self.name}

    def opened(self) -> AbstractContextManager[Engine]:
        return corpus.engine(self.data_dir)

    def index(self) -> Mapping[str, float]:
        """Builds one segment, which contains the vector index and the lexical index."""
        with corpus.engine(self.data_dir, segment_min_leaves=1) as engine:
            return {"segment": seconds(lambda: list(engine.administration().reindex()))}

    def unindexed(self, writer: Writer, collection: CollectionHandle) -> int:
        """Returns the count of leaves in the tail, as a multiple of HRAG_SEGMENT_MIN_LEAVES.

        Maintenance does not seal a tail with fewer leaves than HRAG_SEGMENT_MIN_LEAVES.
        """
        embedded = writer.status(collection).embedded
        assert embedded is not None
        min_leaves = EngineSettings().segment_min_leaves
        return embedded.tail_leaf_count // min_leaves * min_leaves


@dataclass(frozen=True, slots=True)
class PostgresStore:
    """A store of the PostgreSQL engine in a database. `data_dir` is an empty folder."""

    server: PostgresServer
    database: str
    data_dir: Path
    name: str = field(default="postgres", init=False)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HRAG_ENGINE": self.name, "HRAG_POSTGRES_DSN": self.dsn}

    @property
    def dsn(self) -> str:
        """The address of the database: TCP on this machine, with a password."""
        return self.server.tcp_dsn(self.database)

    def opened(self) -> AbstractContextManager[Engine]:
        return corpus.engine(
            self.data_dir,
            engine=self.name,
            postgres_dsn=self.dsn,
            postgres_connections=_CONNECTIONS,
        )

    def index(self) -> Mapping[str, float]:
        """Builds the home (the collection's table) with its HNSW index, then the lexical index."""
        with closing(
            PostgresDatabase(self.dsn, _CONNECTIONS, "hrag-benchmarks", is_writer=True)
        ) as opened:
            number = self._collection_id()
            worker = MaintenanceWorker(opened, _HOME_LEAVES)
            return {
                "home": seconds(lambda: move_collection(opened, corpus.TENANT, number)),
                "words": seconds(lambda: worker.maintain(corpus.TENANT, number, every_leaf=True)),
            }

    def unindexed(self, writer: Writer, collection: CollectionHandle) -> int:  # noqa: ARG002
        """Returns the count of leaves that searches scan; 0 if maintenance would not index them.

        Maintenance does not index a collection that is too small for a home, nor a short tail.
        """
        with (
            closing(PostgresDatabase(self.dsn, 1, "hrag-benchmarks")) as database,
            database.read() as connection,
        ):
            opened_collection = open_by_id(connection, corpus.TENANT, collection.collection_id)
            assert opened_collection is not None
            scanned = home_sizes(connection, opened_collection).scanned
        return (
            scanned
            if scanned > (_HOME_LEAVES if opened_collection.home is None else _SHORT_TAIL)
            else 0
        )

    def bytes_of_tables(self) -> Mapping[str, int]:
        """Returns the sizes of the tables with their TOAST tables, and of the homes' HNSW indexes.

        The key `hnsw` contains the total of all HNSW indexes. Space that VACUUM would free is not
        counted.
        """
        self.server.run("VACUUM", self.database)
        rows = self.server.run(
            """
            SELECT regexp_replace(relname, '_[0-9]+$', ''), pg_table_size(oid),
              pg_indexes_size(oid), (SELECT coalesce(sum(pg_relation_size(indexrelid)), 0)::bigint
                FROM pg_index JOIN pg_class i ON i.oid = indexrelid JOIN pg_am a ON a.oid = i.relam
                WHERE indrelid = c.oid AND amname = 'hnsw')
            FROM pg_class c WHERE relkind = 'r'
            AND relnamespace IN ('hrag'::regnamespace, 'hrag_homes'::regnamespace)
            """,
            self.database,
        )
        return self._by_table(rows)

    @staticmethod
    def _by_table(rows: Sequence[tuple[str, int, int, int]]) -> Mapping[str, int]:
        sizes: dict[str, int] = {}
        for table, heap, indexes, hnsw in rows:
            sizes[table] = sizes.get(table, 0) + heap + indexes - hnsw
            if hnsw:
                sizes["hnsw"] = sizes.get("hnsw", 0) + hnsw
        return sizes

    def _collection_id(self) -> int:
        ((number,),) = self.server.run("SELECT collection_id FROM hrag.collections", self.database)
        return int(number)


@contextmanager
def writing(store: Store, dimension: int) -> Iterator[tuple[Engine, Writer, CollectionHandle]]:
    """Opens an empty store and creates the collection. Yields engine, writer and collection."""
    with store.opened() as engine:
        writer = engine.writer()
        yield engine, writer, corpus.create_collection(writer, dimension)


def commit(
    writer: Writer,
    collection: CollectionHandle,
    documents: Iterable[PreparedDocument],
    at_once: int = _DOCUMENTS_AT_ONCE,
) -> None:
    """Commits all documents, `at_once` in a transaction.

    If the tail is too long, waits until maintenance has indexed enough of it.
    """
    remaining = iter(documents)
    while group := list(islice(remaining, at_once)):
        writer.wait_for_capacity(collection, NEVER)
        writer.put_many([(collection, document) for document in group])


def wait_until_indexed(store: Store, writer: Writer, collection: CollectionHandle) -> None:
    """Waits until the running maintenance has indexed all leaves.

    Raises AssertionError if it takes longer than `_MAX_INDEX_S`.
    """
    deadline = time.monotonic() + _MAX_INDEX_S
    while leaves := store.unindexed(writer, collection):
        assert time.monotonic() < deadline, f"{store.name}: {leaves} leaves are not indexed"
        time.sleep(_POLL_S)


def bytes_on_disk(folder: Path) -> int:
    """Returns the disk space that all files of a folder take."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@contextmanager
def reading(store: Store) -> Iterator[Reader]:
    """Yields a reader in this process with all collections loaded. BLAS has one thread."""
    with store.opened() as engine:
        reader = engine.reader()
        reader.preload()
        with threadpool_limits(1, "blas"):
            yield reader
