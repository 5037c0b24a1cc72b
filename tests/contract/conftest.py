"""The engines on which the tests of the contract run, each engine in every state of its index.

`ENGINES` has, for each engine, a function that opens it and the states of its index. The tests know
only the protocols of `hrag.engine`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hrag.config import EngineSettings
from hrag.engine import open_engine
from hrag.engine.engine_documents import CollectionHandle, PreparedDocument
from hrag.engine.protocols import Engine, Reader, Snapshot, Writer
from hrag.types import SummaryUnit, TreeSettings
from hrag.values.quotas import Quota
from tests.conftest import engine_at
from tests.support.documents.fakes import ModelCollection, collection_settings, prepared, sentences
from tests.support.engines.memory_engine import MemoryEngine
from tests.support.engines.postgres_statements import tenants_named
from tests.support.servers.postgres_server import PostgresServer


@dataclass
class Case:
    """An engine under test, and a model of the collection `c` of tenant `t`.

    * `readers` returns a reader of the store.
    * `index` moves the committed leaves of a collection from the tail to the index. It does nothing
      if the engine has no tail.
    * `restart` replaces the reader by a new one.
    * `reindex` does what `hrag reindex` does; None if the engine cannot be reindexed.
    * `another_store` opens an empty store of the same engine.
    * `quota` is the quota of the tenant `t`.
    * `store` is the store of the embedded engine, which tests may damage; None for other engines.
    * `connect` returns a superuser's connection to a database, which tests may damage; None for
      engines without a database.
    """

    state: str
    quota: Quota = field(default_factory=Quota)
    model: ModelCollection = field(default_factory=ModelCollection)
    engine: Engine = field(init=False)
    writer: Writer = field(init=False)
    readers: Callable[[], Reader] = field(init=False)
    index: Callable[[str, str], object] = field(init=False)
    restart: Callable[[], None] = field(init=False)
    reindex: Callable[[], object] | None = None
    another_store: "Callable[[], Case]" = field(init=False)
    store: Any = None
    connect: Callable[[], psycopg.Connection[Any]] | None = None

    def quota_of(self, tenant_id: str) -> Quota:
        return self.quota if tenant_id == "t" else Quota()

    @property
    def collection(self) -> CollectionHandle:
        return self.writer.open("t", "c")

    def create(self, tree: TreeSettings | None = None) -> None:
        if tree is not None:
            self.model.settings = collection_settings(tree)
        self.writer.create_collection("t", "c", self.model.settings)

    def fill(self, *documents: PreparedDocument) -> None:
        """Commits documents to engine and model, and brings the index into the state `state`."""
        for index, document in enumerate(documents):
            if self.state == "mixed" and index == len(documents) // 2:
                self.index("t", "c")
            self.writer.put(self.collection, document)
            self.model.put(document)
        if self.state in ("sealed", "indexed"):
            self.index("t", "c")

    def delete(self, document_id: str) -> None:
        """Deletes a document from engine and model."""
        self.writer.delete(self.collection, document_id)
        del self.model.documents[document_id]

    def snapshot(
        self, tenant_id: str = "t", name: str = "c", **options: Any
    ) -> AbstractContextManager[Snapshot]:
        return self.readers().snapshot(tenant_id, name, **options)


def _embedded(request: pytest.FixtureRequest, state: str) -> Case:
    folder: Path = request.getfixturevalue("tmp_path")
    return embedded_at(folder / "store", request, state)


def embedded_at(path: Path, request: pytest.FixtureRequest, state: str) -> Case:
    case, closing = Case(state), ExitStack()
    request.addfinalizer(closing.close)
    engine = closing.enter_context(engine_at(path, case.quota_of))
    case.engine, case.store = engine.opened, engine.store
    case.writer = engine.writer
    case.readers = lambda: engine.reader
    case.index = engine.seal
    case.restart = engine.restart_reader
    case.reindex = lambda: engine.reindex(1 if state == "sealed" else 1000)
    case.another_store = lambda: embedded_at(path.with_name("another"), request, state)
    return case


def in_memory(request: pytest.FixtureRequest, state: str) -> Case:
    case, engine = Case(state), MemoryEngine()
    case.engine, case.writer, reader = engine, engine.writer(case.quota_of), engine.reader()
    case.readers = lambda: reader
    case.index = lambda tenant_id, name: None
    case.restart = lambda: None
    case.another_store = lambda: in_memory(request, state)
    return case


def index_every_leaf(engine: Engine, collection: CollectionHandle) -> None:
    """Builds the indexes of a collection in PostgreSQL, and of its summaries, at any size.

    They are the vector index (the home) and the lexical index (its parts).
    """
    collection_ids = [collection.collection_id]
    if collection.settings.summaries is not SummaryUnit.NONE:
        collection_ids.append(collection.collection_id + 1)
    for collection_id in collection_ids:
        engine.maintenance().maintain(collection.tenant_id, collection_id, every_leaf=True)


def in_postgres(request: pytest.FixtureRequest, state: str) -> Case:
    server: PostgresServer = request.getfixturevalue("postgres")
    case, name = Case(state), server.new_database()
    settings = EngineSettings().model_copy(
        update={"engine": "postgres", "postgres_dsn": server.dsn(name)}
    )
    opened, closing = open_engine(settings), ExitStack()
    closing.enter_context(tenants_named())

    def close() -> None:
        closing.close()
        problems = opened.administration().check().problems
        opened.close()
        server.drop(name)
        assert problems == ()

    request.addfinalizer(close)
    case.engine, case.writer = opened, opened.writer(case.quota_of)
    case.connect = lambda: server.connect(name)
    case.readers = opened.reader
    case.index = lambda tenant_id, name: index_every_leaf(opened, case.writer.open(tenant_id, name))
    case.restart = lambda: None
    case.reindex = lambda: list(opened.administration().reindex())
    case.another_store = lambda: in_postgres(request, state)
    return case


OpenCase = Callable[[pytest.FixtureRequest, str], Case]

# In the states "tail" and "shared", no leaf is in an index yet. In "sealed" and "indexed", all
# leaves are in an index. In "mixed", one half of the documents is. The memory engine has no index.
ENGINES: dict[str, tuple[OpenCase, tuple[str, ...]]] = {
    "embedded": (_embedded, ("tail", "sealed", "mixed")),
    "memory": (in_memory, ("plain",)),
    "postgres": (in_postgres, ("shared", "indexed", "mixed")),
}
MARKS = {"postgres": [pytest.mark.postgres]}


@pytest.fixture(
    params=[
        pytest.param((name, state), id=f"{name}-{state}", marks=MARKS.get(name, ()))
        for name, (_, states) in ENGINES.items()
        for state in states
    ]
)
def opened(request: pytest.FixtureRequest) -> Case:
    """An empty engine; the test runs once for each engine and state of its index."""
    name, state = request.param
    return ENGINES[name][0](request, state)


@cache
def _ten_documents() -> tuple[PreparedDocument, ...]:
    return tuple(prepared(f"d{n}", sentences(4 * n + 4, n), seed=n) for n in range(10))


@pytest.fixture
def filled(opened: Case) -> Case:
    """An engine with ten documents, which have about a hundred leaves."""
    opened.create()
    opened.fill(*_ten_documents())
    return opened


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in ENGINES])
def catalog(request: pytest.FixtureRequest) -> Case:
    """An empty engine; the test runs once for each engine, because it does not use the index."""
    open_case, states = ENGINES[request.param]
    return open_case(request, states[0])
