"""Tests of originals in LMDB: pieces, checksums, copies of the store, and stores without them."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from hrag.engine.embedded.admin import vacuum
from hrag.engine.embedded.admin.backup import backup, restore
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance.reclaim import reclaim_some
from hrag.engine.embedded.store import originals
from hrag.engine.embedded.store.environment import Store, open_alone, open_for_reading
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss
from hrag.types import IngestOutcome
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import entries_of

KEEPING = replace(collection_settings(), keep_originals=True)
PIECE = originals.PIECE_BYTES
FILE = Random(1).randbytes(2 * PIECE + 100)
DOCUMENT = replace(prepared("d", sentences(9)), original=FILE)


@pytest.fixture
def writer(store: Store) -> EmbeddedWriter:
    """A writer of a collection that keeps originals, with one document of three pieces."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", KEEPING)
    writer.put(writer.open("t", "c"), DOCUMENT)
    return writer


def address(txn: Txn) -> bytes:
    return address_of(txn, 1, txn.document_ids.get((1, "d")) or 0)


def key_of(txn: Txn, piece: int) -> bytes:
    return address(txn)[:8] + b"\xff" + piece.to_bytes(4, "big")


def pieces(store: Store) -> list[bytes]:
    """The keys of all stored pieces."""
    with store.read() as txn:
        return [key for key, _ in entries_of(txn, "texts") if key[8:9] == b"\xff"]


def read(store: Store, start: int = 0, end: int = len(FILE)) -> bytes:
    with store.read() as txn:
        return txn.originals.read(address(txn), start, end)


def flip(store: Store, piece: int) -> None:
    """Flips a bit in a stored piece."""
    with store.write() as txn:
        handle, key = txn.databases["texts"].handle, key_of(txn, piece)
        value = bytearray(txn.raw.get(key, db=handle) or b"")
        value[7] ^= 1
        txn.raw.put(key, bytes(value), db=handle)


def test_pieces_fill_whole_pages():
    assert (PIECE + 8 + 16) % 4096 == 0


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_a_damaged_piece_is_reported_and_ingesting_again_repairs_it(store, writer, piece):
    flip(store, piece)
    start = piece * PIECE
    for part in ((start, start + 1), (0, len(FILE))):
        with pytest.raises(DataLoss, match="ingesting the document again repairs it") as error:
            read(store, *part)
        assert "document 'd' of collection 't/c'" in error.value.message
    other = (piece + 1) % 3 * PIECE
    assert read(store, other, other + 50) == FILE[other : other + 50]
    assert [problem for problem in check(store).problems if "original does not match" in problem]
    handle = writer.open("t", "c")
    assert writer.admit("t", "c", "d", DOCUMENT.content_hash).unchanged is None
    assert writer.put(handle, DOCUMENT).outcome is IngestOutcome.UPDATED
    assert read(store) == FILE
    assert writer.put(handle, DOCUMENT).outcome is IngestOutcome.UNCHANGED


@pytest.mark.parametrize("piece", [0, 2])
def test_a_missing_piece_is_reported(store, writer, piece):
    with store.write() as txn:
        handle, key = txn.databases["texts"].handle, key_of(txn, piece)
        saved = bytes(txn.raw.get(key, db=handle) or b"")
        txn.raw.delete(key, db=handle)
    with pytest.raises(DataLoss):
        read(store)
    assert any("the pieces of its original" in p or "checksum" in p for p in check(store).problems)
    with store.write() as txn:
        txn.raw.put(key, saved, db=handle)


def test_an_original_that_no_record_mentions_is_reported(store, writer):
    writer.put(writer.open("t", "c"), replace(DOCUMENT, original=None, content_hash="other"))
    assert not pieces(store)
    with store.write() as txn:
        txn.originals.put(address(txn), b"stray")
    (problem,) = check(store).problems
    assert "the pieces of its original do not have the size that its record says" in problem
    with store.write() as txn:
        txn.originals.put(address(txn), b"")


def test_deleting_a_collection_erases_its_originals(store, writer):
    assert len(pieces(store)) == 3
    writer.delete_collection("t", "c")
    while reclaim_some(store):
        pass
    assert not pieces(store)


def test_a_backup_and_a_vacuum_contain_the_originals(store, writer, tmp_path: Path):
    backup(store, tmp_path / "made", str)
    restore(tmp_path / "made", tmp_path / "restored", str)
    restored = open_for_reading(tmp_path / "restored")
    assert read(restored) == FILE
    restored.close()
    vacuum.vacuum(tmp_path / "restored")
    vacuumed = open_alone(tmp_path / "restored")
    assert read(vacuumed) == FILE
    assert not check(vacuumed).problems
    vacuumed.close()


def test_without_the_setting_a_store_has_the_same_bytes(store: Store):
    """A collection that keeps no originals has the entries that it had before they existed."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    for count in (9, 12):
        writer.put(writer.open("t", "c"), prepared("d", sentences(count)))
    assert not pieces(store)
    with store.read() as txn:
        ((_, collection),) = entries_of(txn, "collections")
        ((_, document),) = entries_of(txn, "documents")
    assert list(json.loads(collection[:-8])["settings"]) == [
        *("tree", "embedder", "dimension", "return_level", "summaries", "analyzer"),
        "index_headings",
    ]
    start = b'[1,"d","Title of d","https://example.org/d","text/plain","'
    assert document.startswith(start)
    assert len(json.loads(document[:-8])) == 16
