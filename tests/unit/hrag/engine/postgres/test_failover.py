"""The primary is lost and its standby promoted: an engine that knows both hosts goes on.

Without a restart: searches at once, by the standby, writes once it is promoted. With synchronous
replication, nothing that was acknowledged is lost.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from hrag.config import EngineSettings
from hrag.engine import open_engine
from hrag.engine.protocols import Engine, Reader, Writer
from hrag.errors import CollectionNotFound, StoreMissing, StoreUnavailable
from tests.conftest import _with_schema
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
    """A primary with a standby, and an engine that writes to the one and reads from the other."""

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
        document = prepared(name, sentences(3, len(name)))
        self.writer.put(self.writer.open("t", "c"), document)

    def names(self) -> set[str]:
        handle = self.writer.open("t", "c")
        return {each.document_id for each in self.writer.documents(handle, 1000, "").items}

    def found(self) -> set[str]:
        """The documents that a search finds."""
        with self.reader.snapshot("t", "c") as snapshot:
            passages = find(snapshot, query_vector(1), 1000).passages
        return {each.chunk.document_id for each in passages}

    def can_write(self) -> bool:
        try:
            self.put("afterwards")
        except StoreUnavailable:
            return False
        return True


@pytest.fixture
def cluster(own_server: PostgresServer) -> Iterator[Cluster]:
    _with_schema(own_server.dsn())
    with closing(own_server.standby()) as standby:
        cluster = Cluster(own_server, standby)
        with closing(cluster.engine):
            yield cluster
            if standby.run("SELECT pg_is_in_recovery()") == [(False,)]:
                assert cluster.engine.administration().check().problems == ()


def test_searches_go_on_while_there_is_no_primary_and_writes_after_the_promotion(
    cluster: Cluster,
) -> None:
    cluster.put("before")
    cluster.standby.wait_for(cluster.primary)
    assert cluster.found() == {"before"}
    cluster.primary.kill()
    assert cluster.found() == {"before"}
    with pytest.raises(StoreUnavailable):
        cluster.put("meanwhile")
    cluster.standby.promote()
    until(cluster.can_write)
    assert cluster.found() == {"before", "afterwards"} == cluster.names()


def test_searches_go_on_when_the_standby_is_lost(cluster: Cluster) -> None:
    cluster.put("before")
    cluster.standby.wait_for(cluster.primary)
    assert cluster.found() == {"before"}
    cluster.standby.kill()
    assert cluster.found() == {"before"}
    cluster.put("afterwards")
    assert cluster.found() == {"before", "afterwards"}
    cluster.standby.start()


def test_synchronous_replication_loses_no_acknowledged_document(cluster: Cluster) -> None:
    """Four threads write while the primary is killed."""
    cluster.primary.run(_SYNCHRONOUS)
    cluster.primary.run("SELECT pg_reload_conf()")
    state = "SELECT sync_state FROM pg_stat_replication"
    until(lambda: cluster.primary.run(state) == [("sync",)])
    acknowledged: list[str] = []
    enough = threading.Semaphore(0)

    def write(thread: int) -> None:
        for number in range(100_000):
            name = f"{thread}-{number}"
            try:
                cluster.put(name)
            except StoreUnavailable:
                return
            acknowledged.append(name)
            enough.release()

    with ThreadPoolExecutor(4) as threads:
        writing = [threads.submit(write, thread) for thread in range(4)]
        for _ in range(100):
            enough.acquire()
        cluster.primary.kill()
        for each in writing:
            each.result()
    cluster.standby.promote()
    cluster.standby.run("ALTER SYSTEM RESET synchronous_standby_names")
    cluster.standby.run("SELECT pg_reload_conf()")
    until(cluster.can_write)
    assert len(acknowledged) >= 100
    assert set(acknowledged) <= cluster.names()
    assert set(acknowledged) <= cluster.found()


def test_what_a_standby_has_not_received_yet_is_missing_not_wrong(cluster: Cluster) -> None:
    """A standby that lags has an older state of everything."""
    cluster.put("before")
    cluster.standby.wait_for(cluster.primary)
    cluster.standby.run("SELECT pg_wal_replay_pause()")
    cluster.put("afterwards")
    cluster.writer.create_collection("t", "new", collection_settings())
    assert cluster.found() == {"before"}
    with pytest.raises(CollectionNotFound), cluster.reader.snapshot("t", "new"):
        raise StoreMissing("found too early")
    cluster.standby.run("SELECT pg_wal_replay_resume()")
    cluster.standby.wait_for(cluster.primary)
    assert cluster.found() == {"before", "afterwards"}
