"""No acknowledged write is lost, at whatever moment a process or the PostgreSQL server is killed.

A seed determines the statement at which an indexer or a reader is killed, and the count of
acknowledged writes after which the server is killed.
"""

import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import migrate
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.types import Retrieval, SearchMode
from tests.crash.documents import SETTINGS, text_of
from tests.crash.postgres_ledger import FileLedger
from tests.crash.postgres_process import (
    COLLECTION,
    HOME_LEAVES,
    LIMITS,
    PASSING,
    TENANTS,
    version_of,
)
from tests.support.documents.fakes import find
from tests.support.documents.vocabulary import question
from tests.support.engines.memory_engine import MemoryEngine
from tests.support.engines.postgres_twins import TOLERANCE, Twins
from tests.support.servers.forked import Forked
from tests.support.servers.postgres_server import PostgresServer
from tests.support.until import until

pytestmark = pytest.mark.postgres

_SEED = 20_261_123
_KINDS = ("indexer", "indexer", "indexer", "server", "reader")
_ROOT = Path(__file__).parents[2]
_FEW_STATEMENTS = 100
_MANY_STATEMENTS = 5000
_MODULE = "tests.crash.postgres_process"
_BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'hrag-%'"
_ENDING_S = 60.0


@dataclass
class CrashRun:
    """Kills the processes and the server of one store, and verifies the store after each kill.

    `homes` counts the vector indexes that were found, and `parts` those of the lexical index.
    """

    server: PostgresServer
    folder: Path
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    verified: int = 0
    homes: int = 0
    parts: int = 0

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._path = self.folder / "ledger"
        with self._database() as database:
            migrate(database)
            for tenant_id in TENANTS:
                for name in (COLLECTION, PASSING):
                    PostgresWriter(database).create_collection(tenant_id, name, SETTINGS)

    @property
    def acknowledged(self) -> int:
        return self._ledger().acknowledged

    def run(self, kinds: list[str]) -> None:
        kill = {
            "indexer": self._kill_indexer,
            "reader": self._kill_reader,
            "server": self._kill_server,
        }
        for index, kind in enumerate(kinds):
            kill[kind]()
            self.kills[kind] += 1
            self._wait_for_backends()
            self.verify(finishes=index % 2 == 1)
        self.verify(finishes=True)

    def _kill_indexer(self) -> None:
        """Makes an indexer kill itself at a random statement, early or while it works."""
        max_statements = self._draw.choice([_FEW_STATEMENTS, _MANY_STATEMENTS])
        at = 1 + self._draw.randrange(max_statements)
        process = self._process("writer", at, self._draw.choice([0.0, 0.0, 0.001, 0.01]))
        assert process.wait(_ENDING_S) == -signal.SIGKILL, self._log()

    def _kill_reader(self) -> None:
        """Kills a reader. Fails unless an indexer that works at the same time continues."""
        indexer = self._process("writer", 0)
        try:
            reader = self._process("reader", 1 + self._draw.randrange(200), 0.001)
            assert reader.wait(_ENDING_S) == -signal.SIGKILL, self._log()
            self._wait_for_more()
        finally:
            self._end(indexer)

    def _kill_server(self) -> None:
        """Kills the server and starts it again. Fails unless an indexer and a reader continue."""
        processes = [self._process("writer", 0), self._process("reader", 0)]
        try:
            self._wait_for_more(5 + self._draw.randrange(30))
            self.server.kill()
            self.server.start()
            self._wait_for_more()
        finally:
            for process in processes:
                self._end(process)

    def _process(self, role: str, at: int, delay_s: float = 0.0) -> Forked:
        arguments = (role, self._dsn, str(self._path), str(self._draw.randrange(1 << 30)))
        environment = {"PYTHONPATH": str(_ROOT)}
        log = self.folder / "log"
        return Forked(("-m", _MODULE, *arguments, str(at), str(delay_s)), environment, log)

    def _end(self, process: Forked) -> None:
        assert process.poll() is None, self._log()
        process.kill()
        process.wait(_ENDING_S)

    def _wait_for_more(self, writes: int = 5) -> None:
        """Waits until `writes` more writes have been acknowledged."""
        before = self.acknowledged
        until(lambda: self.acknowledged >= before + writes, _ENDING_S)

    def _wait_for_backends(self) -> None:
        """Waits until the server has ended all sessions of hrag, because one may still commit."""
        until(lambda: self.server.run(_BACKENDS) == [(0,)], _ENDING_S)

    def verify(self, *, finishes: bool) -> None:
        """Fails unless all acknowledged writes are stored and found.

        If `finishes` is true, maintenance completes the work that the kills interrupted, before the
        searches.
        """
        with self._database() as database:
            assert check(database).problems == ()
            self._settle(PostgresWriter(database))
            if finishes:
                self._finish(database)
            self._search(database)

    def _settle(self, writer: PostgresWriter) -> None:
        ledger = self._ledger()
        for tenant_id in TENANTS:
            handle = writer.open(tenant_id, COLLECTION)
            infos = writer.documents(handle, 1000, "").items
            stored = {info.document_id: int(info.metadata["version"]) for info in infos}
            known = {name for tenant, name in ledger.entries if tenant == tenant_id}
            assert stored.keys() <= known
            for name in known:
                entry = str(ledger.entries[tenant_id, name])
                assert ledger.settle((tenant_id, name), stored.get(name)), (name, stored, entry)
            for name, version in stored.items():
                _, text, _ = writer.document_with_text(handle, name)
                assert text == text_of(tenant_id, name, version)
                self.verified += 1

    def _finish(self, database: PostgresDatabase) -> None:
        """Completes interrupted maintenance.

        Fails if an unused home, a row of a deleted collection, or a term vector remains.
        """
        twins = Twins(database, HOME_LEAVES, LIMITS)
        with database.write() as connection:
            connection.execute(
                "UPDATE hrag.home_slots SET drop_after = now() WHERE drop_after IS NOT NULL"
            )
            rows = connection.execute("SELECT tenant_id, collection_id FROM hrag.collections")
            collections = rows.fetchall()
        for tenant_id, collection_id in collections:
            twins.worker.maintain(tenant_id, collection_id, every_leaf=True)
        until(lambda: twins.reclaim() is None and not twins.unused_slots())
        for table in ("term_vectors", "deleted_collections"):
            assert twins.rows(f"hrag.{table}") == 0
        assert check(database).problems == ()
        with database.read() as connection:
            (tables,) = connection.execute(
                "SELECT count(*) FROM pg_class WHERE relnamespace = 'hrag_homes'::regnamespace"
                " AND relkind = 'r'"
            ).fetchone()
        homes = database_value(database, "SELECT count(home) FROM hrag.collections")
        assert tables == homes
        self.homes += homes
        self.parts += twins.rows("hrag.postings_parts")

    def _search(self, database: PostgresDatabase) -> None:
        """Fails unless lexical searches return the same scores as the memory engine does.

        The memory engine has the documents that the ledger says are stored.
        """
        ledger, memory = self._ledger(), MemoryEngine()
        writer = memory.writer()
        for tenant_id in TENANTS:
            writer.create_collection(tenant_id, COLLECTION, SETTINGS)
        for (tenant_id, name), entry in ledger.entries.items():
            if entry.certain.stores:
                document = version_of(tenant_id, name, entry.certain.number)
                writer.put(writer.open(tenant_id, COLLECTION), document)
        for tenant_id in TENANTS:
            for _ in range(3):
                self._compare(PostgresReader(database), memory.reader(), tenant_id)

    def _compare(self, reader: PostgresReader, expected: object, tenant_id: str) -> None:
        text = question(self._draw)
        options = {"mode": SearchMode.STANDARD, "retrieval": Retrieval.LEXICAL, "text": text}
        scores = []
        for engine_reader in (reader, expected):
            with engine_reader.snapshot(tenant_id, COLLECTION) as snapshot:
                passages = find(snapshot, None, 100, **options).passages
                scores.append([passage.score for passage in passages])
        assert scores[0] == pytest.approx(scores[1], abs=TOLERANCE)

    @contextmanager
    def _database(self) -> Iterator[PostgresDatabase]:
        with closing(PostgresDatabase(self._dsn, 8, "tests", is_writer=True)) as database:
            yield database

    @property
    def _dsn(self) -> str:
        return self.server.dsn()

    def _ledger(self) -> FileLedger:
        return FileLedger(self._path)

    def _log(self) -> str:
        return (self.folder / "log").read_text()[-5000:]


def database_value(database: PostgresDatabase, statement: str) -> int:
    with database.read() as connection:
        return connection.execute(statement).fetchone()[0]


def _run(folder: Path, kinds: list[str], seed: int, capsys: pytest.CaptureFixture[str]) -> CrashRun:
    with closing(PostgresServer(is_durable=True)) as server:
        run = CrashRun(server, folder, seed)
        try:
            run.run(kinds)
        finally:
            with capsys.disabled():
                figures = f"{dict(run.kills)}, {run.acknowledged} acknowledged writes"
                verified = (
                    f"{run.verified} documents verified, {run.homes} homes, {run.parts} parts"
                )
                print(f"\nseed {seed}: {figures}, {verified}")  # noqa: T201 - a run reports its figures
    return run


@pytest.mark.timeout(600)
def test_a_few_kills_lose_no_acknowledged_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path, list(_KINDS), _SEED, capsys)
    assert run.homes
    assert run.parts


@pytest.mark.endurance
@pytest.mark.timeout(1200)
def test_fifty_kills_lose_no_acknowledged_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    kinds = [*_KINDS] * 10
    random.Random(seed).shuffle(kinds)
    run = _run(tmp_path, kinds, seed, capsys)
    assert run.kills.total() == 50
    assert run.acknowledged > 1000
