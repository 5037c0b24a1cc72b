"""Repair writes again what follows from the documents, and lists the rest."""

from contextlib import closing
from pathlib import Path

import pytest

from hrag.config import EngineSettings
from hrag.engine import open_engine
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss, StoreUnavailable
from hrag.filters import Exists
from tests.damage import flip_first
from tests.fakes import collection_settings, prepared, seal, sentences


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "store"
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        for number, name in enumerate("ab"):
            writer.put(writer.open("t", "c"), prepared(name, sentences(30, number), seed=number))
        seal(store, 1)
        writer.put(writer.open("t", "c"), prepared("c", sentences(30, 3), seed=3))
        writer.put(writer.open("t", "c"), prepared("b", sentences(20, 4), seed=4))
    return folder


def administration(folder: Path):
    settings = EngineSettings().model_copy(update={"data_dir": folder})
    return open_engine(settings).administration()


@pytest.mark.parametrize("name", ["terms", "counters", "tenants", "deleted_leaves"])
def test_what_follows_from_the_documents_is_written_again(folder, name):
    flip_first(folder, name)
    assert administration(folder).check().problems != ()
    assert administration(folder).repair().problems == ()
    assert administration(folder).check().problems == ()


def test_a_sequence_that_is_lost_becomes_one_past_all_that_were_used(tmp_path):
    """Though a transaction may have had many changes, and one of an alias writes no document."""
    with closing(open_for_writing(tmp_path)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        collection = writer.open("t", "c")
        writer.put_many([(collection, prepared(f"d{n}", sentences(1, n))) for n in range(20)])
        list(writer.delete_matching(collection, Exists("document_id")))
        for _ in range(20):
            writer.set_alias("t", "a", "c")
            used = writer.delete_alias("t", "a")
    flip_first(tmp_path, "tenants")
    assert administration(tmp_path).repair().problems == ()
    with closing(open_for_writing(tmp_path)) as store:
        assert EmbeddedWriter(store).set_alias("t", "a", "c").sequence > used


@pytest.mark.parametrize("name", ["documents", "texts", "trees", "vectors"])
def test_a_document_that_is_damaged_stays_listed_until_it_is_ingested_again(folder, name):
    flip_first(folder, name)
    problems = administration(folder).repair().problems
    assert problems
    assert all(problem.startswith("collection t/c: document a ") for problem in problems)
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.put(writer.open("t", "c"), prepared("a", sentences(30, 0), seed=0))
    assert administration(folder).check().problems == ()


@pytest.mark.parametrize("name", ["documents", "ordinals", "document_ids"])
def test_a_damaged_document_can_be_deleted(folder, name):
    flip_first(folder, name)
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        with pytest.raises(DataLoss, match="document 'a' of collection 't/c' is damaged"):
            writer.document(writer.open("t", "c"), "a")
        writer.delete(writer.open("t", "c"), "a")
    assert administration(folder).check().problems == ()


def test_a_store_in_use_is_left_alone(folder):
    with closing(open_for_writing(folder)), pytest.raises(StoreUnavailable, match="in use"):
        administration(folder).repair()


@pytest.mark.parametrize(("name", "derived"), [("meta", "tenants"), ("segments", "counters")])
def test_what_repair_needs_stops_it_with_what_helps(folder, name, derived):
    flip_first(folder, name)
    flip_first(folder, derived)
    before = (folder / "data.mdb").read_bytes()
    with pytest.raises(DataLoss, match=r"nothing was repaired.*hrag restore"):
        administration(folder).repair()
    assert (folder / "data.mdb").read_bytes() == before
