"""Tests of the checks of checksums: a recent check is not repeated, but an old one is."""

import pytest

from hrag.engine.embedded.search.document_reader import CitationCache
from hrag.engine.embedded.search.selected_rows import FilterResultCache
from hrag.engine.embedded.search.snapshot import SnapshotCaches
from hrag.engine.embedded.store import location
from hrag.engine.embedded.store.queries import address_of
from hrag.errors import DataLoss
from hrag.values.ids import ChunkId
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import flip_part
from tests.unit.hrag.engine.embedded.maintenance.workers import Clock


@pytest.fixture
def clock(engine: Engine) -> Clock:
    """The clock of the reader's checks."""
    clock = Clock()
    engine.restart_reader(caches=SnapshotCaches(CitationCache(clock=clock), FilterResultCache()))
    engine.writer.create_collection("t", "c", collection_settings())
    return clock


def content(engine: Engine) -> str:
    with engine.reader.snapshot("t", "c") as snapshot:
        return snapshot.chunk(ChunkId("d", 0, 0)).chunk.content


@pytest.mark.parametrize("name", ["texts", "trees"])
def test_damage_is_noticed_when_the_last_check_is_old(
    engine: Engine, clock: Clock, name: str
) -> None:
    engine.writer.put(engine.open(), prepared("d", sentences(30)))
    before = content(engine)
    flip_last(engine, name)
    assert content(engine) == before
    clock.now_s += 3600
    with pytest.raises(DataLoss, match="document 'd' of collection 't/c' is damaged"):
        content(engine)
    flip_last(engine, name)
    assert content(engine) == before


def test_damage_of_a_tree_is_noticed_by_every_search(engine: Engine, clock: Clock) -> None:
    """No commit follows the damage, so searches still find the values that were read before it."""
    collection_id = engine.open().collection_id
    engine.writer.put(engine.open(), prepared("d", sentences(1500)))
    before = content(engine)
    with engine.store.read() as txn:
        stored = bytes(txn.contents.tree(address_of(txn, collection_id, 1)))
    flip_in_file(engine, stored)
    assert content(engine) == before
    clock.now_s += 3600
    for _ in range(3):
        with pytest.raises(DataLoss, match="document 'd' of collection 't/c' is damaged"):
            content(engine)
    flip_in_file(engine, stored)
    assert content(engine) == before


def flip_in_file(engine: Engine, stored: bytes) -> None:
    """Flips a bit in the last byte of a value in the store's file. A second call undoes that."""
    with (engine.store.directory / location.DATA).open("r+b") as file:
        content = file.read()
        end = content.index(stored[:-1]) + len(stored) - 1
        file.seek(end)
        file.write(bytes([content[end] ^ 1]))


def flip_last(engine: Engine, name: str) -> None:
    """Flips a bit in the last byte of the document's tree or text. A second call undoes that."""
    with engine.store.write() as txn:
        flip_part(txn, name, -1)
