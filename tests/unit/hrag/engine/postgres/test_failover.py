"""An engine that knows both hosts continues without a restart when the primary is lost.

Searches continue at once on the standby. Writes continue after its promotion. With synchronous
replication, no acknowledged document is lost.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from hrag.config import EngineSettings
from hrag.engine import open_engine
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import migrate
from hrag.engine.protocols import Engine, Reader, Writer
from hrag.errors import CollectionNotFound, StoreMissing, StoreUnavailable
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    query_vector,
    sentences,
)
from tests.support.servers.postgres_server import PostgresServer, hosts
from tests.support.until import until

pytestmark = pytest.mark.postgres

_SYNCHRONOUS = "ALTER SYSTEM SET synchronous_standby_names = '*'"


@dataclass
class Cluster:
    """A primary with a standby.

    The engine writes to the primary and prefers to read from the standby.
    """

    primary: PostgresServer
    standby: PostgresServer
    engine: Engine = field(init=False)
    writer: Writer = field(init=False)
    reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        both = (self.primary, self.standby)
        settings = EngineSettings().model_copy(
            update={
                "engine": "postgres",
                "postgres_dsn": hosts(*both),
                "postgres_read_dsn": hosts(*both, target_session_attrs="prefer-standby"),
            }
        )
        self.engine = open_engine(settings)
        self.writer, self.reader = self.engine.writer(), self.engine.reader()
        self.writer.create_collection("t", "c", collection_settings())

    def put(self, name: str) -> None:
        """Puts a document with this id."""
        document = prepared(name, sentences(3, len(name)))
        self.writer.put(self.writer.open("t", "c"), document)

    def listed(self) -> set[str]:
        """Returns the ids of the documents that the writer lists."""
        handle = self.writer.open("t", "c")
        return {info.document_id for info in self.writer.documents(handle, 1000, "").items}

    def searched(self) -> set[str]:
        """Returns the ids of the documents that a search finds."""
        with self.reader.snapshot("t", "c") as snapshot:
            passages = find(snapshot, query_vector(1), 1000).passages
        return {passage.chunk.document_id for passage in passages}

    def can_write(self) -> bool:
        """Puts the document `afterwards`; returns False if no server accepts it."""
        try:
            self.put("afterwards")
        except StoreUnavailable:
            return False
        return True


@pytest.fixture
def cluster(
    own_server: PostgresServer, opened: Callable[..., PostgresDatabase]
) -> Iterator[Cluster]:
    """A cluster whose store is checked after the test if the standby was promoted."""
    migrate(opened(own_server.dsn()))
    with closing(own_server.standby()) as standby:
        cluster = Cluster(own_server, standby)
        with closing(cluster.engine):
            yield cluster
            if standby.run("SELECT pg_is_in_recovery()") == [(False,)]:
                assert cluster.engine.administration().check().problems == ()


def test_searches_continue_without_a_primary_and_writes_continue_after_the_promotion(
    cluster: Cluster,
) -> None:
    cluster.put("before")
    cluster.standby.wait_for(cluster.primary)
    assert cluster.searched() == {"before"}
    cluster.primary.kill()
    assert cluster.searched() == {"before"}
    with pytest.raises(StoreUnavailable):
        cluster.put("meanwhile")
    cluster.standby.promote()
    until(cluster.can_write)
    assert cluster.searched() == {"before", "afterwards"} == cluster.listed()


def test_searches_continue_when_the_standby_is_lost(cluster: Cluster) -> None:
    cluster.put("before")
    cluster.standby.wait_for(cluster.primary)
    assert cluster.searched() == {"before"}
    cluster.standby.kill()
    assert cluster.searched() == {"before"}
    cluster.put("afterwards")
    assert cluster.searched() == {"before", "afterwards"}
    cluster.standby.start()


def test_synchronous_replication_loses_no_acknowledged_document(cluster: Cluster) -> None:
    """Four threads are writing while the primary is killed."""
    cluster.primary.run(_SYNCHRONOUS)
    cluster.primary.run("SELECT pg_reload_conf()")
    state = "SELECT sync_state FROM pg_stat_replication"
    until(lambda: cluster.primary.run(state) == [("sync",)])
    acknowledged: list[str] = []
    acknowledgements = threading.Semaphore(0)

    def write(thread: int) -> None:
        for number in range(100_000):
            name = f"{thread}-{number}"
            try:
                cluster.put(name)
            except StoreUnavailable:
                return
            acknowledged.append(name)
            acknowledgements.release()

    with ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(write, thread) for thread in range(4)]
        for _ in range(100):
            acknowledgements.acquire()
        cluster.primary.kill()
        for writer in writers:
            writer.result()
    cluster.standby.promote()
    cluster.standby.run("ALTER SYSTEM RESET synchronous_standby_names")
    cluster.standby.run("SELECT pg_reload_conf()")
    until(cluster.can_write)
    assert len(acknowledged) >= 100
    assert set(acknowledged) <= cluster.listed()
    assert set(acknowledged) <= cluster.searched()


def test_a_standby_that_lags_has_an_older_state_of_everything(cluster: Cluster) -> None:
    cluster.put("before")
    cluster.standby.wait_for(cluster.primary)
    cluster.standby.run("SELECT pg_wal_replay_pause()")
    state = "SELECT pg_get_wal_replay_pause_state()"
    until(lambda: cluster.standby.run(state) == [("paused",)])
    cluster.put("afterwards")
    cluster.writer.create_collection("t", "new", collection_settings())
    assert cluster.searched() == {"before"}
    with pytest.raises(CollectionNotFound), cluster.reader.snapshot("t", "new"):
        raise StoreMissing("the standby has the collection too early")
    cluster.standby.run("SELECT pg_wal_replay_resume()")
    cluster.standby.wait_for(cluster.primary)
    assert cluster.searched() == {"before", "afterwards"}
