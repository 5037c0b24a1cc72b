"""Shared fixtures: a clean environment, and stores that are checked when their test ends."""

import asyncio
import gc
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
import structlog
from hypothesis import settings as hypothesis_settings

from hrag.config import EngineSettings
from hrag.engine import CollectionHandle, PreparedDocument, open_engine
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.engine import EmbeddedEngine
from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.store import child_process
from hrag.engine.embedded.store.environment import Store, open_for_writing
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.types import SummaryUnit
from hrag.values.quotas import QuotaOf, unlimited
from tests.support.documents.fakes import ModelCollection, run_maintenance, seal
from tests.support.servers.forked import ran

if TYPE_CHECKING:
    from hrag.models.embedding.builtin import BuiltinEmbedder
    from tests.support.servers.postgres_server import PostgresServer

# No example has a deadline, because a busy machine may make it slow. Each property test runs 50
# examples, so that the default test run ends within five minutes.
hypothesis_settings.register_profile("default", deadline=None, max_examples=50)
hypothesis_settings.register_profile("few", deadline=None, max_examples=10)
hypothesis_settings.load_profile("default")

# The DSN of a superuser on the coordinator of a Citus cluster for tests. It is read here, because
# the settings of a developer are removed from the environment of the tests.
_CITUS_DSN = os.environ.get("HRAG_TEST_CITUS_DSN", "")

_TESTS = Path(__file__).parent
# In these folders, every test has the marker with the name of the folder.
_GROUPS = frozenset(
    {
        *("attacks", "browser", "clients", "containers"),
        *("docs", "endurance", "frameworks", "models"),
    }
)

# Longer bytes are not shown in the ids of tests.
_MAX_ID_BYTES = 40

# The free disk space that each store of a test reserves.
_DISK_RESERVE_BYTES = 1 << 20

# Names of environment variables that configure hrag begin with one of these prefixes.
_SETTING_PREFIXES = ("HRAG_", "HIERARCHICAL_", "SMALL_TO_BIG_", "OPENAI_", "OTEL_")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds options.

    `--engine` chooses the engine for the end-to-end tests in `tests/e2e`. With `citus`, tests of
    the engine on PostgreSQL use the cluster that HRAG_TEST_CITUS_DSN names. With `--parts` N, only
    one of N parts of the test modules runs; `--part-seed` chooses the part.
    """
    parser.addoption("--engine", choices=("embedded", "postgres", "citus"), default="embedded")
    parser.addoption("--parts", type=int, default=1)
    parser.addoption("--part-seed", default="")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out the folder of a group of tests if `-m` excludes its marker.

    The folder of a group has the name of the group's marker. Without this, each process would
    import thousands of tests that it does not run.
    """
    expression = config.getoption("markexpr")
    is_left_out = f"not {collection_path.name}" in expression.split(" and ")
    is_group = collection_path.parent == _TESTS and collection_path.name in _GROUPS
    return True if is_group and is_left_out and " or " not in expression else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the modules of one part. Equal seeds choose equal parts in all processes.

    Modules are kept whole, because the tests of a module share servers and other costly fixtures.
    """
    parts, seed = config.getoption("parts"), config.getoption("part_seed")
    if parts == 1:
        return
    items[:] = [item for item in items if crc32(f"{seed} {item.location[0]}".encode()) % parts == 0]


def pytest_collection_finish() -> None:
    """Excludes all modules and tests from garbage collections.

    A collection that scans them takes most of a second, and many tests cause one.
    """
    gc.collect()
    gc.freeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names long or binary parameters by their argument, because files may contain the time.

    Processes that share the tests must collect the same names.
    """
    if not isinstance(val, bytes) or (len(val) <= _MAX_ID_BYTES and val.isascii()):
        return None  # pytest makes the id from the value.
    return argname


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """Removes a developer's settings from the environment of the tests.

    Sets a small disk reserve: thousands of stores with the default reserve would fill a disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_SETTING_PREFIXES)]:
            patch.delenv(name)
        patch.setenv("HRAG_DISK_RESERVE_BYTES", str(_DISK_RESERVE_BYTES))
        yield


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Restores the settings of structlog after each test.

    A command that runs in the process of the tests sets the level and the format of all logs.
    During a test, no logger caches these settings.
    """
    before, configure = structlog.get_config(), structlog.configure

    def uncached(**options: Any) -> None:
        configure(**{**options, "cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", uncached)
        yield
    configure(**before)


@pytest.fixture(scope="session", autouse=True)
def _no_event_loop() -> None:
    """Declares that the main thread has no event loop.

    Otherwise the first code that asks for a loop would create a loop that nobody closes.
    """
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session", autouse=True)
def _forked_children() -> Iterator[None]:
    """Forks the programs that the engine runs in child processes.

    A new interpreter would need a second to start each of these programs.
    """

    def run_module(module: str, *arguments: str) -> CompletedProcess[str]:
        return ran("-m", module, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child_process, "run_module", run_module)
        yield


@pytest.fixture
def no_garbage() -> None:
    """Frees what earlier tests left in reference cycles, for example idle connections.

    The objects that are still used are excluded from later collections. Otherwise each collection
    would scan everything that all earlier tests have loaded.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_collector(no_garbage: None) -> Iterator[None]:
    """Turns the garbage collector off, so objects in reference cycles are not freed."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def builtin() -> "BuiltinEmbedder":
    """The built-in embedder, which takes a second to load."""
    from hrag.models.embedding.builtin import BuiltinEmbedder

    return BuiltinEmbedder()


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator["PostgresServer"]:
    """A PostgreSQL server for all tests of this process. Tests must leave it running.

    With `--engine=citus`, it is the coordinator of a cluster.
    """
    from tests.support.servers import citus_cluster, postgres_server

    if problem := postgres_server.why_not():
        pytest.skip(problem)
    if pytestconfig.getoption("--engine") != "citus":
        opened = postgres_server.PostgresServer(_create_schema)
    elif _CITUS_DSN:
        opened = citus_cluster.CitusCluster(_CITUS_DSN, _create_schema)
    else:
        pytest.skip("HRAG_TEST_CITUS_DSN does not name a Citus cluster for tests")
    with closing(opened) as server:
        yield server


def _create_schema(dsn: str) -> None:
    """Creates the schema of a store in the empty database that `dsn` names."""
    from hrag.engine.postgres.store.database import PostgresDatabase
    from hrag.engine.postgres.store.schema import migrate

    with closing(PostgresDatabase(dsn, 1, "hrag-tests")) as database:
        migrate(database)


@pytest.fixture
def postgres_dsn(postgres: "PostgresServer") -> Iterator[str]:
    """The DSN of a new database with an empty store, dropped when its test ends."""
    name = postgres.new_database()
    yield postgres.dsn(name)
    postgres.drop(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A new store of the embedded engine. The store is checked when the test ends."""
    store = open_for_writing(tmp_path / "store")
    yield store
    problems = check(store).problems
    store.close()
    assert problems == ()


@dataclass
class Engine:
    """The embedded engine, opened by `open_engine`, with one writer and one reader.

    Tests of single modules of the engine use `store`.
    """

    opened: EmbeddedEngine
    writer: EmbeddedWriter
    reader: EmbeddedReader

    @property
    def store(self) -> Store:
        assert self.opened.store is not None
        return self.opened.store

    def open(self, tenant_id: str = "t", name: str = "c") -> CollectionHandle:
        return self.writer.open(tenant_id, name)

    def put(self, model: ModelCollection, document: PreparedDocument, name: str = "c") -> None:
        """Stores a document in a collection, and in the model of the collection."""
        self.writer.put(self.open(name=name), document)
        model.put(document)

    def seal(self, tenant_id: str = "t", name: str = "c") -> SegmentRecord | None:
        """Builds segments of the collection's tail and of its summaries' tail; restarts the reader.

        Returns the record of the collection's new segment, or None if its tail was empty.
        """
        opened = self.open(tenant_id, name)
        record = seal(self.store, opened.collection_id)
        if opened.settings.summaries is not SummaryUnit.NONE:
            with self.store.read() as txn:
                summaries = txn.collections.require(opened.collection_id).summaries
            seal(self.store, summaries)
        self.restart_reader()
        return record

    def run_maintenance(
        self, threshold: int, name: str = "c", damaged: frozenset[int] = frozenset()
    ) -> int:
        """Builds and merges segments until no step is due; returns the count of steps."""
        return run_maintenance(self.store, self.open(name=name).collection_id, threshold, damaged)

    def reindex(self, threshold: int) -> None:
        """Does what `hrag reindex` does, which needs the store to be closed; restarts the reader.

        A collection without segments gets one if it has at least `threshold` leaves.
        """
        for collection in sorted(segment_build.all_collections(self.store)):
            segment_build.reindex(self.store, collection, threshold)
        self.restart_reader()

    def restart_reader(self, **options: Any) -> None:
        """Closes the reader and opens a new one, which has loaded nothing.

        `options` are the limits, caches or clock of the new reader.
        """
        self.reader.close()
        if options:
            self.reader = EmbeddedReader(self.store, vector_budget_bytes=0, **options)
        else:
            self.reader = self.opened.reader()


@contextmanager
def engine_at(path: Path, quota_of: QuotaOf = unlimited) -> Iterator[Engine]:
    """Opens a new store with its writer and reader. Fails if the store is damaged at the end.

    The vectors of segments stay in their files, as those of large segments do.
    """
    settings = {"data_dir": path, "vector_memory_bytes": 0}
    engine = open_engine(EngineSettings().model_copy(update=settings))
    assert isinstance(engine, EmbeddedEngine)
    tested = Engine(engine, engine.writer(quota_of), engine.reader())
    yield tested
    problems = engine.administration().check().problems
    tested.reader.close()
    engine.close()
    assert problems == ()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An embedded engine on a new store. The store is checked when the test ends."""
    with engine_at(tmp_path / "store") as engine:
        yield engine
