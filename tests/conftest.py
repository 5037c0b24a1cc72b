"""Stores in temporary folders, each checked as a whole when its test ends; a clean environment."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hrag.engine import CollectionHandle
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.store.environment import Store, open_for_writing
from hrag.engine.embedded.store.queries import read_collection
from hrag.engine.embedded.store.records import SegmentRecord
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.types import SummaryUnit
from tests.fakes import put_in_order, seal

_OURS = ("HRAG_", "HIERARCHICAL_", "SMALL_TO_BIG_", "OPENAI_", "OTEL_")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """What a developer has exported must not reach the services under test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_OURS)]:
            patch.delenv(name)
        yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A new store; its test fails if it leaves an inconsistency behind."""
    store = open_for_writing(tmp_path / "store")
    yield store
    problems = check(store).problems
    store.close()
    assert problems == ()


@dataclass
class Engine:
    """Both sides of one store: LMDB allows one environment per process and path."""

    store: Store
    writer: EmbeddedWriter
    reader: EmbeddedReader

    def open(self, tenant_id: str = "t", name: str = "c") -> CollectionHandle:
        return self.writer.open(tenant_id, name)

    def seal(self, tenant_id: str = "t", name: str = "c") -> SegmentRecord | None:
        """Seals the tail into a segment of its own; goes on with a reader that has it.

        The tail of the summaries too, if there is one.
        """
        opened = self.open(tenant_id, name)
        record = seal(self.store, opened.collection_id)
        if opened.settings.summaries is not SummaryUnit.NONE:
            with self.store.read() as txn:
                summaries = read_collection(self.store, txn, opened.collection_id).summaries
            seal(self.store, summaries)
        self.restart_reader()
        return record

    def put_in_order(
        self, threshold: int, name: str = "c", damaged: frozenset[int] = frozenset()
    ) -> int:
        """All that the index needs; returns how many segments that built."""
        return put_in_order(self.store, self.open(name=name).collection_id, threshold, damaged)

    def restart_reader(self) -> None:
        self.reader.close()
        self.reader = EmbeddedReader(self.store)


@pytest.fixture
def engine(store: Store) -> Iterator[Engine]:
    """A writer and a reader over one store."""
    engine = Engine(store, EmbeddedWriter(store), EmbeddedReader(store))
    yield engine
    engine.reader.close()
