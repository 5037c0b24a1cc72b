"""Test of the checks of checksums: a recent check is not repeated, but an old one is."""

import pytest

from hrag.engine.embedded.search.document_reader import CitationCache
from hrag.engine.embedded.search.selected_rows import FilterResultCache
from hrag.engine.embedded.search.snapshot import SnapshotCaches
from hrag.errors import DataLoss
from hrag.values.ids import ChunkId
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import flip_part
from tests.unit.hrag.engine.embedded.maintenance.workers import Clock


@pytest.mark.parametrize("name", ["texts", "trees"])
def test_damage_is_noticed_when_the_last_check_is_old(engine: Engine, name: str) -> None:
    clock = Clock()
    engine.restart_reader(caches=SnapshotCaches(CitationCache(clock=clock), FilterResultCache()))
    engine.writer.create_collection("t", "c", collection_settings())
    engine.writer.put(engine.open(), prepared("d", sentences(30)))

    def content() -> str:
        with engine.reader.snapshot("t", "c") as snapshot:
            return snapshot.chunk(ChunkId("d", 0, 0)).chunk.content

    before = content()
    flip_last(engine, name)
    assert content() == before
    clock.now_s += 3600
    with pytest.raises(DataLoss, match="document 'd' of collection 't/c' is damaged"):
        content()
    flip_last(engine, name)
    assert content() == before


def flip_last(engine: Engine, name: str) -> None:
    """Flips a bit in the last byte of the document's tree or text. A second call undoes that."""
    with engine.store.write() as txn:
        flip_part(txn, name, -1)
