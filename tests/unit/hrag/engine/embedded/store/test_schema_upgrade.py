"""A store of the schema before the newest is read as it is, and a writer makes it the newest."""

import pytest

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import open_alone, open_for_reading, open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from tests.fakes import collection_settings, prepared, sentences


@pytest.fixture
def older(tmp_path, monkeypatch):
    """The folder of a store of schema 7, with a document."""
    with monkeypatch.context() as before:
        before.setattr(schema, "SCHEMA_VERSION", schema.OLDEST_VERSION)
        store = open_for_writing(tmp_path)
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    writer.put(writer.open("t", "c"), prepared("d", sentences(9)))
    store.close()
    return tmp_path


def version_of(store):
    with store.read() as txn:
        return store.number(txn, schema.SCHEMA)


@pytest.mark.parametrize("opening", [open_for_reading, open_alone])
def test_reading_changes_nothing(older, opening):
    before = (older / "data.mdb").read_bytes()
    store = opening(older)
    assert version_of(store) == schema.OLDEST_VERSION
    assert check(store).problems == ()
    store.close()
    assert (older / "data.mdb").read_bytes() == before


def test_a_writer_makes_it_the_newest(older):
    for _ in range(2):
        store = open_for_writing(older)
        assert version_of(store) == schema.SCHEMA_VERSION
        EmbeddedWriter(store).set_alias("t", "a", "c")
        assert EmbeddedWriter(store).open("t", "a").name == "c"
        assert check(store).problems == ()
        store.close()
