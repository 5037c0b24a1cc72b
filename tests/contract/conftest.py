"""The engines under the contract's tests, each in every state its index can be in.

`ENGINES` says how to open an engine and how to bring it into a state; the tests know
only `hrag.engine`'s protocols.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pytest

from hrag.engine import CollectionHandle, PreparedDocument, Reader, Snapshot, Writer
from hrag.types import TreeSettings
from tests.conftest import Engine
from tests.fakes import ModelCollection, collection_settings, prepared, sentences

STATES = ("tail", "sealed", "mixed")


@dataclass
class Case:
    """An engine under test. `index` moves what is committed out of the tail."""

    writer: Writer
    readers: Callable[[], Reader]
    index: Callable[[str, str], object]
    restart: Callable[[], None]
    state: str
    model: ModelCollection = field(default_factory=ModelCollection)

    @property
    def collection(self) -> CollectionHandle:
        return self.writer.open("t", "c")

    def create(self, tree: TreeSettings | None = None) -> None:
        if tree is not None:
            self.model.settings = collection_settings(tree)
        self.writer.create_collection("t", "c", self.model.settings)

    def fill(self, *documents: PreparedDocument) -> None:
        """Commits documents to engine and model, then brings the index into its state."""
        for number, document in enumerate(documents):
            if self.state == "mixed" and number == len(documents) // 2:
                self.index("t", "c")
            self.writer.put(self.collection, document)
            self.model.put(document)
        if self.state == "sealed":
            self.index("t", "c")

    def snapshot(self, tenant_id: str = "t", name: str = "c") -> AbstractContextManager[Snapshot]:
        return self.readers().snapshot(tenant_id, name)


def _embedded(request: pytest.FixtureRequest, state: str) -> Case:
    engine: Engine = request.getfixturevalue("engine")
    return Case(engine.writer, lambda: engine.reader, engine.seal, engine.restart_reader, state)


ENGINES = {"embedded": _embedded}


@pytest.fixture(params=[(name, state) for name in ENGINES for state in STATES], ids="-".join)
def opened(request: pytest.FixtureRequest) -> Case:
    name, state = request.param
    return ENGINES[name](request, state)


@pytest.fixture
def filled(opened: Case) -> Case:
    """Ten documents, about a hundred leaves."""
    opened.create()
    opened.fill(*(prepared(f"d{n}", sentences(4 * n + 4, n), seed=n) for n in range(10)))
    return opened


@pytest.fixture(params=ENGINES)
def catalog(request: pytest.FixtureRequest) -> Case:
    """An engine whose index does not matter."""
    return ENGINES[request.param](request, "tail")
