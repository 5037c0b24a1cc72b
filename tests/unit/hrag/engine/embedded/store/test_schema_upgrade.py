"""A store of the schema version before this one is upgraded when an indexer opens it."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hrag.config import EngineSettings
from hrag.engine.common.filter_terms import is_format_term
from hrag.engine.embedded.engine import EmbeddedEngine
from hrag.engine.embedded.store import schema, schema_upgrade
from hrag.engine.embedded.store.environment import open_for_reading, open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import StoreMissing, StoreUnavailable
from hrag.filters import Filter, Match, NoneOf
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    """The folder of a store of the version before: with a segment, a tail and a tombstone."""
    folder = tmp_path / "store"
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        collection = writer.open("t", "c")
        for number, mime_type in enumerate(("text/plain", "application/pdf", "text/html")):
            document = prepared(f"d{number}", sentences(30), seed=number)
            writer.put(collection, replace(document, mime_type=mime_type))
            if number == 1:
                seal(store, 1)
        writer.delete(collection, "d0")
        with store.write() as txn:
            stored = [(bytes(key), bytes(entry)) for key, entry in txn.terms.stored()]
            for key, entry in stored:
                if is_format_term(key[schema.COLLECTION_BYTES :]):
                    txn.raw.delete(key, entry, db=store.databases["terms"].handle)
            txn.put_number(schema.SCHEMA, schema_upgrade.UPGRADED_VERSION)
    return folder


def found(folder: Path, filter: Filter) -> list[str]:
    with closing(EmbeddedEngine(EngineSettings(HRAG_DATA_DIR=folder))) as engine:
        writer = engine.writer()
        page = writer.documents(writer.open("t", "c"), 10, "", filter=filter)
        return [info.document_id for info in page.items]


def test_documents_of_the_version_before_are_found_by_their_format(store_dir: Path) -> None:
    assert found(store_dir, Match("format", ("pdf",))) == ["d1"]
    assert found(store_dir, NoneOf((Match("mime_type", ("application/pdf",)),))) == ["d2"]
    engine = EmbeddedEngine(EngineSettings(HRAG_DATA_DIR=store_dir))
    assert engine.administration().check().problems == ()
    with closing(open_for_reading(store_dir)) as store, store.read() as txn:
        assert txn.number(schema.SCHEMA) == schema.SCHEMA_VERSION


def test_a_reader_waits_for_the_indexer_that_upgrades_the_store(store_dir: Path) -> None:
    before = (store_dir / "data.mdb").read_bytes()
    with pytest.raises(StoreMissing, match="schema version 9; an indexer of this version of hrag"):
        open_for_reading(store_dir)
    assert (store_dir / "data.mdb").read_bytes() == before


@pytest.mark.parametrize("command", ["reindex", "repair", "check", "vacuum"])
def test_commands_upgrade_nothing(store_dir: Path, command: str) -> None:
    """The version of hrag that wrote the store can open it until an indexer upgrades it."""
    before = (store_dir / "data.mdb").read_bytes()
    settings = EngineSettings(HRAG_DATA_DIR=store_dir)
    administration = EmbeddedEngine(settings).administration()
    with pytest.raises(StoreUnavailable, match="schema version 9; an indexer"):
        list(getattr(administration, command)() or ())
    assert (store_dir / "data.mdb").read_bytes() == before


def test_an_upgrade_that_fails_changes_nothing(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter((schema_upgrade.format_term,))

    def format_term_of_one(mime_type: str) -> bytes:
        return next(calls)(mime_type)

    with monkeypatch.context() as failing:
        failing.setattr(schema_upgrade, "format_term", format_term_of_one)
        with pytest.raises(StopIteration):
            open_for_writing(store_dir, upgrades=True)
    with pytest.raises(StoreMissing, match="schema version 9"):
        open_for_reading(store_dir)
    assert found(store_dir, Match("format", ("pdf",))) == ["d1"]


def test_a_damaged_record_does_not_prevent_the_upgrade(store_dir: Path) -> None:
    with closing(open_for_writing(store_dir, upgrades=True)) as store, store.write() as txn:
        key, value = next((bytes(k), bytes(v)) for k, v in txn.documents.stored())
        txn.raw.put(
            key, value[:-1] + bytes([value[-1] ^ 1]), db=store.databases["documents"].handle
        )
        txn.put_number(schema.SCHEMA, schema_upgrade.UPGRADED_VERSION)
    with closing(open_for_writing(store_dir, upgrades=True)) as store, store.read() as txn:
        assert txn.number(schema.SCHEMA) == schema.SCHEMA_VERSION
