"""A store of an older schema is read as it is, and a writer makes it the newest.

Its documents stay as they were stored until they are ingested again.
"""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.environment import (
    Store,
    Txn,
    open_alone,
    open_for_reading,
    open_for_writing,
)
from hrag.engine.embedded.store.lmdb_records import packed_document
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.queries import read_collection, read_counters, read_document
from hrag.engine.embedded.store.tenant_usage import read_usage, stored_bytes, write_usage
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss
from hrag.types import IngestOutcome
from hrag.values.ids import ChunkId
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.support.engines.damage import delete_content, flip_first

ADDRESS = schema.address(schema.u64(1), 1, 1)
OLDER = [schema.OLDEST_VERSION, schema.SCHEMA_VERSION - 1]


def make_older(folder: Path, version: int) -> None:
    """Gives a closed store and all of its documents the form of an older schema."""
    with closing(open_for_writing(folder)) as store, store.write() as txn:
        for key, value in list(store.scan(txn, "ordinals", b"")):
            number, ordinal = schema.read_in_collection(key)
            slot = schema.read_document_entry(value)[1]
            _make_older(store, txn, number, schema.address(slot, number, ordinal))
        txn.put(schema.SCHEMA, schema.u64(version), db=store.db["meta"])


def _make_older(store: Store, txn: Txn, number: int, address: bytes) -> None:
    parts = {name: bytes(txn.get(address, store.db[name]) or b"") for name in content.PARTS}
    delete_content(txn, store.db, address)
    for name, value in parts.items():
        txn.put(address, value, store.db[name])
    record = read_document(store, txn, address)
    takes = stored_bytes(record, terms_of(record), len(parts["trees"]), has_content=False)
    more, record = takes - record.stored_bytes, replace(record, stored_bytes=takes)
    txn.put(address, packed_document(record, has_content=False), store.db["documents"])
    counters = read_counters(store, txn, number)
    counters = counters._replace(stored_bytes=counters.stored_bytes + more)
    txn.put(schema.u32(number), counters.to_bytes(), store.db["counters"])
    tenant_id = read_collection(store, txn, number).tenant_id
    usage = read_usage(store, txn, tenant_id)
    usage = usage._replace(stored_bytes=usage.stored_bytes + more)
    write_usage(store, txn, tenant_id, usage)


@pytest.fixture(params=OLDER)
def version(request):
    return request.param


@pytest.fixture
def older(tmp_path, version):
    """The folder of a store of an older schema: a document in a segment, and one in the tail."""
    with closing(open_for_writing(tmp_path)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        writer.put(writer.open("t", "c"), prepared("d", sentences(90)))
        seal(store, 1)
        writer.put(writer.open("t", "c"), prepared("e", sentences(9), seed=1))
    make_older(tmp_path, version)
    return tmp_path


def version_of(store):
    with store.read() as txn:
        return store.number(txn, schema.SCHEMA)


def entries_of(store):
    with store.read() as txn:
        return {name: txn.stat(store.db[name])["entries"] for name in content.PARTS}


def first_chunks(store):
    """The beginnings of both documents as a search reads them."""
    with closing(EmbeddedReader(store)) as reader, reader.snapshot("t", "c") as snapshot:
        return [snapshot.chunk(ChunkId(name, 0, 0)).chunk.content for name in "de"]


@pytest.mark.parametrize("opening", [open_for_reading, open_alone])
def test_reading_changes_nothing(older, opening, version):
    before = (older / "data.mdb").read_bytes()
    with closing(opening(older)) as store:
        assert version_of(store) == version
        assert check(store).problems == ()
        found = first_chunks(store)
        assert [sentences(90).startswith(found[0]), sentences(9).startswith(found[1])] == [True] * 2
    assert (older / "data.mdb").read_bytes() == before


def test_a_writer_makes_it_the_newest(older):
    for _ in range(2):
        store = open_for_writing(older)
        assert version_of(store) == schema.SCHEMA_VERSION
        EmbeddedWriter(store).set_alias("t", "a", "c")
        assert EmbeddedWriter(store).open("t", "a").name == "c"
        assert check(store).problems == ()
        store.close()


def test_documents_keep_their_form_until_they_are_ingested_again(older):
    with closing(open_for_writing(older)) as store:
        writer = EmbeddedWriter(store)
        collection = writer.open("t", "c")
        same = writer.put(collection, prepared("d", sentences(90)))
        assert same.outcome is IngestOutcome.UNCHANGED
        assert entries_of(store) == {"trees": 2, "texts": 2, "vectors": 2}
        sequence = writer.document(collection, "d").sequence
        writer.put_metadata(collection, "d", sequence, {"a": 1}, "elsewhere")
        assert writer.document(collection, "d").metadata == {"a": 1}
        assert check(store).problems == ()
        writer.put(collection, prepared("d", sentences(80)))
        assert entries_of(store)["trees"] == 1
        writer.delete(collection, "e")
        assert entries_of(store)["trees"] == entries_of(store)["vectors"] == 0
        seal(store, 1)
        assert writer.document_with_text(collection, "d")[1] == sentences(80)
        assert check(store).problems == ()


@pytest.mark.parametrize("name", [*content.PARTS, "documents"])
def test_damage_to_their_values_is_noticed_and_mended(older, name):
    flip_first(older, name)
    with closing(open_for_writing(older)) as store:
        (problem,) = {each.split(":")[1] for each in check(store).problems}
        assert problem == " document d (ordinal 1)"
        writer = EmbeddedWriter(store)
        with store.read() as txn, pytest.raises(DataLoss, match="document 'd' of collection 't/c'"):
            txn.get(ADDRESS, store.db[name])
        writer.put(writer.open("t", "c"), prepared("d", sentences(90)))
        assert check(store).problems == ()


@pytest.mark.parametrize("name", content.PARTS)
def test_a_missing_value_is_found(older, name):
    with closing(open_for_writing(older)) as store:
        with store.write() as txn:
            txn.delete(ADDRESS, db=store.db[name])
        problem = "collection t/c: document d (ordinal 1): text, tree or vectors are missing"
        assert check(store).problems[0] == problem
