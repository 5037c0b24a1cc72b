"""The same documents in a store of each engine, for benchmarks that compare the two.

Documents are committed as the indexer does, some 512 leaves in a transaction, and every commit
is synced to the disk by both engines. Indexing is a step of its own, so that it can be timed
alone; or maintenance runs meanwhile, as in the service.
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
from hrag.engine.postgres.store.database import Database
from hrag.engine.postgres.store.opened_collection import open_by_number
from hrag.values.deadline import NEVER
from tests.support.servers.postgres_server import PostgresServer

# What docs/operations/postgres.md tells every operator, for a machine of 4 GB.
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

_DOCUMENTS_AT_ONCE = 5  # About 512 leaves, as the service commits them.
_CONNECTIONS = 4
_POLL_S = 0.05
_MAX_INDEX_S = 900.0
_HOME_LEAVES: int = EngineSettings().postgres_home_leaves
_SHORT_TAIL = 256  # Leaves that maintenance leaves unindexed: a scan of them is cheap.


class Store(Protocol):
    """An empty or filled store of one engine, used by one benchmark at a time."""

    @property
    def name(self) -> str:
        """The engine's, as HRAG_ENGINE has it."""

    @property
    def data_dir(self) -> Path:
        """The folder that a service is given."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings by which a service opens the store."""

    def opened(self) -> AbstractContextManager[Engine]:
        """Opens the engine."""

    def index(self) -> Mapping[str, float]:
        """Indexes all leaves at once; returns the seconds of each step by its name."""

    def unindexed(self, writer: Writer, collection: CollectionHandle) -> int:
        """Returns how many leaves the maintenance that runs has still to index; 0 at the end."""


@dataclass(frozen=True, slots=True)
class EmbeddedStore:
    """A store in a folder."""

    data_dir: Path
    name: str = field(default="embedded", init=False)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HRAG_ENGINE": self.name}

    def opened(self) -> AbstractContextManager[Engine]:
        return corpus.engine(self.data_dir)

    def index(self) -> Mapping[str, float]:
        """Builds one segment, which has vectors and words."""
        with corpus.engine(self.data_dir, segment_min_leaves=1) as engine:
            return {"segment": seconds(lambda: list(engine.administration().reindex()))}

    def unindexed(self, writer: Writer, collection: CollectionHandle) -> int:
        """A tail shorter than HRAG_SEGMENT_MIN_LEAVES is not sealed."""
        embedded = writer.status(collection).embedded
        assert embedded is not None
        least = EngineSettings().segment_min_leaves
        return embedded.tail_leaf_count // least * least


@dataclass(frozen=True, slots=True)
class PostgresStore:
    """A store in a database. `data_dir` is an empty folder."""

    server: PostgresServer
    database: str
    data_dir: Path
    name: str = field(default="postgres", init=False)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HRAG_ENGINE": self.name, "HRAG_POSTGRES_DSN": self.dsn}

    @property
    def dsn(self) -> str:
        """TCP on this machine, with a password."""
        return self.server.tcp_dsn(self.database)

    def opened(self) -> AbstractContextManager[Engine]:
        return corpus.engine(
            self.data_dir,
            engine=self.name,
            postgres_dsn=self.dsn,
            postgres_connections=_CONNECTIONS,
        )

    def index(self) -> Mapping[str, float]:
        """Builds a home with its HNSW index, then the parts of the lexical index."""
        with closing(Database(self.dsn, _CONNECTIONS, "hrag-benchmarks", is_writer=True)) as opened:
            number = self._number()
            worker = MaintenanceWorker(opened, _HOME_LEAVES)
            return {
                "home": seconds(lambda: move_collection(opened, corpus.TENANT, number)),
                "words": seconds(lambda: worker.maintain(corpus.TENANT, number, every_leaf=True)),
            }

    def unindexed(self, writer: Writer, collection: CollectionHandle) -> int:  # noqa: ARG002
        """A collection that needs no home is indexed as it is, and so is a short tail."""
        with (
            closing(Database(self.dsn, 1, "hrag-benchmarks")) as opened,
            opened.read() as connection,
        ):
            found = open_by_number(connection, corpus.TENANT, collection.collection_id)
            assert found is not None
            scanned = home_sizes(connection, found).scanned
        return scanned if scanned > (_HOME_LEAVES if found.home is None else _SHORT_TAIL) else 0

    def bytes_of_tables(self) -> Mapping[str, int]:
        """Returns the size of each table with its TOAST, and of each home's HNSW index apart.

        What VACUUM would give back is not counted.
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

    def _number(self) -> int:
        ((number,),) = self.server.run("SELECT collection_id FROM hrag.collections", self.database)
        return int(number)


@contextmanager
def writing(store: Store, dimension: int) -> Iterator[tuple[Engine, Writer, CollectionHandle]]:
    """Opens an empty store and creates the collection."""
    with store.opened() as engine:
        writer = engine.writer()
        yield engine, writer, corpus.create_collection(writer, dimension)


def commit(
    writer: Writer,
    collection: CollectionHandle,
    documents: Iterable[PreparedDocument],
    at_once: int = _DOCUMENTS_AT_ONCE,
) -> None:
    """Commits all documents, waiting for maintenance where the engine asks for it."""
    rest = iter(documents)
    while group := list(islice(rest, at_once)):
        writer.wait_for_capacity(collection, NEVER)
        writer.put_many([(collection, document) for document in group])


def wait_until_indexed(store: Store, writer: Writer, collection: CollectionHandle) -> None:
    """Waits for the maintenance that runs."""
    deadline = time.monotonic() + _MAX_INDEX_S
    while left := store.unindexed(writer, collection):
        assert time.monotonic() < deadline, f"{store.name}: {left} leaves are not indexed"
        time.sleep(_POLL_S)


def bytes_on_disk(folder: Path) -> int:
    """Returns what all files of a folder take on its disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@contextmanager
def reading(store: Store) -> Iterator[Reader]:
    """Opens a reader in this process and loads what it needs; BLAS has one thread."""
    with store.opened() as engine:
        reader = engine.reader()
        reader.preload()
        with threadpool_limits(1, "blas"):
            yield reader
