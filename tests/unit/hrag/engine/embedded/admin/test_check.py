"""Tests of the check of a store: it finds every kind of damage and says where it is."""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hrag.engine.common.filter_terms import term
from hrag.engine.common.records import Usage
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import metadata_terms, schema
from hrag.engine.embedded.store.codecs import CollectionName, DocumentEntry
from hrag.engine.embedded.store.damaged_documents import OF_DOCUMENTS
from hrag.engine.embedded.store.environment import Store, open_for_writing
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.engine.reports import CheckReport
from hrag.values.tree import CHUNK, Tree
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.support.engines.damage import delete_content, overwrite, put_encoded, put_part

ORDINAL, ADDRESS = schema.u64(1), schema.address(schema.u64(1), 1, 1)
COLLECTION = schema.u32(1)
TERM = term(metadata_terms.field_prefix(1, "title"), "Title of d")
IN_DOCUMENT = "collection t/c: document d (ordinal 1): "


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with two documents: `d` is in a segment, `e` is in the tail.

    The store is not checked when the test ends, because it is damaged by then.
    """
    store = open_for_writing(tmp_path / "store")
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    writer.put(writer.open("t", "c"), prepared("d", sentences(60)))
    seal(store, 1)
    writer.put(writer.open("t", "c"), prepared("e", sentences(60, 1), seed=1))
    yield store
    store.close()


def problems_after(store: Store, damage: Callable[[Txn], object]) -> tuple[str, ...]:
    """Damages the store, and returns the problems that the check finds."""
    with store.write() as txn:
        damage(txn)
    return check(store).problems


def document_with(txn: Txn, **fields: Any) -> None:
    """Changes fields in the record of the document `d`."""
    txn.documents.put(ADDRESS, replace(txn.documents.require(ADDRESS), **fields))


def counters_with(store: Store, **fields: int) -> Callable[[Txn], None]:
    """Returns a function that changes fields of the collection's counters."""

    def damage(txn: Txn) -> None:
        changed = txn.counters.require(1)._replace(**fields)
        txn.counters.put(1, changed)

    return damage


def tree_with(level: int, index: int, **fields: int) -> Callable[[Txn], None]:
    """Returns a function that changes fields of one chunk in the tree of the document `d`."""

    def damage(txn: Txn) -> None:
        tree = Tree(bytes(txn.contents.tree(ADDRESS)))
        levels = [tree.level(at).copy() for at in range(len(tree.counts))]
        for name, value in fields.items():
            levels[level][index][name] = value
        put_part(txn, ADDRESS, "trees", Tree.from_levels(levels).to_bytes())

    return damage


def test_a_sound_store_has_no_problems(store):
    report = check(store)
    leaves = 2 * len(prepared("d", sentences(60)).vectors)
    assert report == CheckReport(1, 2, leaves, 1, ())


def test_an_empty_store_is_sound(tmp_path):
    store = open_for_writing(tmp_path)
    assert check(store) == CheckReport(0, 0, 0, 0, ())
    store.close()


def test_a_deleted_collection_that_is_not_reclaimed_yet_is_sound(store):
    EmbeddedWriter(store).delete_collection("t", "c")
    assert check(store) == CheckReport(0, 0, 0, 0, ())


# Tests of numbers that the check counts again.


@pytest.mark.parametrize("name", OF_DOCUMENTS)
def test_a_wrong_counter_is_found(store, name):
    with store.read() as txn:
        right = getattr(txn.counters.require(1), name)
    found = problems_after(store, counters_with(store, **{name: right + 1}))
    assert found == (f"collection t/c: counter {name} is {right + 1}, a recount gives {right}",)


@pytest.mark.parametrize("name", ["collections", "documents", "stored_bytes"])
def test_a_wrong_total_of_a_tenant_is_found(store, name):
    with store.read() as txn:
        right = read_usage(txn, "t")
    wrong = right._replace(**{name: getattr(right, name) - 1})
    found = problems_after(store, lambda txn: txn.tenants.put("t", wrong))
    expected = f"counter {name} is {getattr(wrong, name)}, a recount gives {getattr(right, name)}"
    assert found == (f"tenant t: {expected}",)


def test_a_sequence_number_above_the_tenants_last_one_is_found(store):
    with store.read() as txn:
        wrong = read_usage(txn, "t")._replace(sequence=2)
    found = problems_after(store, lambda txn: txn.tenants.put("t", wrong))
    assert found == ("collection t/c: its last sequence number 3 is greater than its tenant's, 2",)


def test_a_missing_and_a_surplus_tenant_record_are_found(store):
    found = problems_after(store, lambda txn: txn.tenants.delete("t"))
    assert found[0] == "collection t/c: its last sequence number 3 is greater than its tenant's, 0"
    assert len(found) == 4
    assert all(problem.startswith("tenant t: counter ") for problem in found[1:])
    found = problems_after(store, lambda txn: txn.tenants.put("other", Usage(documents=1)))
    assert "tenant other: counter documents is 1, a recount gives 0" in found


def test_a_document_record_with_a_wrong_size_is_found(store):
    with store.read() as txn:
        right = txn.documents.require(ADDRESS).stored_bytes
    found = problems_after(store, lambda txn: document_with(txn, stored_bytes=1))
    assert f"{IN_DOCUMENT}it takes {right} bytes, its record says 1" in found


def test_a_document_with_a_future_sequence_number_is_found(store):
    found = problems_after(store, lambda txn: document_with(txn, sequence=9))
    assert found == (
        f"{IN_DOCUMENT}its sequence number 9 is greater than the collection's last, 3",
    )


def test_missing_counters_are_found(store):
    found = problems_after(store, lambda txn: txn.counters.delete(1))
    assert found[0] == "collection t/c: it has no counters"
    assert all(problem.startswith("tenant t: ") for problem in found[1:])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"log_entries": 9}, "the log has 2 entries, the counters say 9"),
        ({"sequence": 99}, "the last log entry has sequence number 3, but the counters say 99"),
        ({"sequence": 99}, "its last sequence number 99 is greater than its tenant's, 3"),
        ({"sealed_sequence": 5}, "its sealed sequence number 5 is greater than its last, 3"),
        (
            {"sealed_sequence": 1},
            "segment 1 covers sequence number 2, but the counters say that segments cover up to 1",
        ),
        (
            {"log_start": 2},
            "the log begins with sequence number 2, but the counters say that it begins after 2",
        ),
        ({"sealed_ordinal": 0}, "segments cover ordinals up to 1, but the counters say up to 0"),
    ],
)
def test_counters_that_contradict_log_or_manifest_are_found(store, fields, problem):
    found = problems_after(store, counters_with(store, **fields))
    assert f"collection t/c: {problem}" in found


def test_a_lost_log_entry_is_found(store):
    found = problems_after(store, lambda txn: txn.changes.delete((1, 3)))
    assert "collection t/c: the log has 1 entries, the counters say 2" in found
    assert (
        "collection t/c: the last log entry has sequence number 2, but the counters say 3" in found
    )


# Tests of names, ids, ordinals, slots and filter terms.


def test_an_unreadable_collection_record_is_found(store):
    found = problems_after(store, lambda txn: put_encoded(txn, "collections", COLLECTION, b"{"))
    assert found[0].startswith("collection 1: its record is damaged: JSONDecodeError")
    assert all(problem.startswith("tenant t: ") for problem in found[1:])


def test_names_and_collections_that_do_not_match_are_found(store):
    def rename(txn: Txn) -> None:
        txn.collection_names.delete(("t", "c"))
        txn.collection_names.put(("t", "x"), CollectionName(9))

    assert problems_after(store, rename) == (
        "collection t/c: its name does not refer to it",
        r"collection name b't\x00x' refers to a collection that does not exist",
    )


def test_an_alias_of_a_collection_that_is_not_the_tenants_is_found(store):
    def add(txn: Txn) -> None:
        for tenant_id, collection_id in (("t", 1), ("t2", 1), ("t3", 9)):
            txn.collection_names.put((tenant_id, "a"), CollectionName(collection_id, is_alias=True))

    assert problems_after(store, add) == (
        r"alias b't2\x00a' refers to a collection that is not one of the tenant's",
        r"alias b't3\x00a' refers to a collection that does not exist",
    )


def test_a_document_id_with_the_ordinal_of_another_document_is_found(store):
    found = problems_after(store, lambda txn: txn.document_ids.put((1, "d"), 2))
    assert found == (f"{IN_DOCUMENT}its id is stored with another ordinal, or not at all",)


def test_a_missing_document_id_is_found(store):
    found = problems_after(store, lambda txn: txn.document_ids.delete((1, "d")))
    assert found == (
        f"{IN_DOCUMENT}its id is stored with another ordinal, or not at all",
        "collection t/c: 1 document ids for 2 documents",
    )


def test_a_document_without_an_ordinal_entry_is_found(store):
    found = problems_after(store, lambda txn: txn.ordinals.delete((1, 1)))
    for name in ("documents", "texts"):
        assert f"{name} has slot 1, which no document has" in found
    assert "1 slots are used or free; they must be the slots 1 to 2" in found
    assert "collection t/c: counter documents is 2, a recount gives 1" in found


@pytest.mark.parametrize(
    "name", ["counters", "document_ids", "ordinals", "terms", "changes", "segments"]
)
def test_entries_of_a_collection_that_does_not_exist_are_found(store, name):
    key = schema.u32(7) if name == "counters" else schema.in_collection(7, 1)
    value = ORDINAL if name == "terms" else Counters().to_bytes()
    put = overwrite if name == "terms" else put_encoded
    found = problems_after(store, lambda txn: put(txn, name, key, value))
    assert f"{name} has an entry of collection 7, which does not exist" in found


def test_an_ordinal_that_would_be_used_twice_is_found(store):
    found = problems_after(store, lambda txn: txn.put_number(schema.LAST_ORDINAL, 1))
    assert found == ("ordinal 2 is greater than the last assigned ordinal; it would be used twice",)


def test_a_slot_that_two_documents_use_is_found(store):
    entry = DocumentEntry(24, schema.u64(1))
    found = problems_after(store, lambda txn: txn.ordinals.put((1, 2), entry))
    assert "two documents have the same slot" in found
    assert "documents has slot 2, which no document has" in found


def test_a_slot_that_is_listed_as_free_but_used_is_found(store):
    found = problems_after(store, lambda txn: txn.free_slots.add(schema.u64(1)))
    assert found == ("slot 1 is listed as free, but a document uses it",)


def test_a_missing_filter_term_is_found(store):
    found = problems_after(store, lambda txn: txn.terms.remove(TERM, 1))
    assert found[0] == f"{IN_DOCUMENT}filters do not find it by all of its values"
    assert "terms are stored, its documents have" in found[1]


def test_a_filter_term_that_no_document_has_is_found(store):
    found = problems_after(store, lambda txn: txn.terms.add(TERM, 2))
    assert len(found) == 1
    assert "terms are stored, its documents have" in found[0]


# Tests of the contents of documents.


@pytest.mark.parametrize("damage", [None, b"", b"{", b"[]", b"{}"])
def test_a_missing_or_unreadable_document_record_is_found(store, damage):
    def damage_record(txn: Txn) -> None:
        txn.documents.delete(ADDRESS)
        if damage is not None:
            put_encoded(txn, "documents", ADDRESS, damage)

    found = problems_after(store, damage_record)
    assert found[0].startswith(f"{IN_DOCUMENT}its record is missing or damaged: ")


@pytest.mark.parametrize("fields", [{"collection": 2}, {"leaf_count": 1}])
def test_a_record_with_another_collection_or_leaf_count_is_found(store, fields):
    found = problems_after(store, partial(document_with, **fields))
    assert (
        f"{IN_DOCUMENT}its record names another collection or leaf count than its entry in ordinals"
        in found
    )


def test_missing_content_is_found(store):
    found = problems_after(store, lambda txn: delete_content(txn, ADDRESS))
    assert found == (f"{IN_DOCUMENT}text, tree or vectors are missing",)


def test_a_text_that_is_too_short_or_not_utf8_is_found(store):
    text, length = sentences(60).encode(), len(sentences(60))
    found = problems_after(store, lambda txn: put_part(txn, ADDRESS, "texts", text[:-1]))
    assert found == (f"{IN_DOCUMENT}text has {length - 1} bytes, its record says {length}",)
    text = b"\xff" + text[1:]
    found = problems_after(store, lambda txn: put_part(txn, ADDRESS, "texts", text))
    assert len(found) == 1
    assert found[0].startswith(f"{IN_DOCUMENT}text is not UTF-8: ")


def test_vectors_of_a_wrong_size_or_not_of_unit_length_are_found(store):
    vectors = prepared("d", sentences(60)).vectors
    cut = vectors.tobytes()[:-4]
    found = problems_after(store, lambda txn: put_part(txn, ADDRESS, "vectors", cut))
    leaves = f"{len(vectors)} leaves of dimension {vectors.shape[1]}"
    assert found == (f"{IN_DOCUMENT}{len(cut)} bytes of vectors for {leaves}",)
    for wrong in (vectors * 2, vectors * 0, vectors * np.float32("nan")):
        put = partial(put_part, address=ADDRESS, name="vectors", value=wrong.tobytes())
        assert problems_after(store, put) == (f"{IN_DOCUMENT}a vector is not of unit length",)


# Tests of chunk trees.


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "tree is damaged: 0 bytes are too few for a tree"),
        (b"\3\0\0\0", "tree is damaged: 4 bytes are too few for a tree"),
        (struct.pack("<2I", 1, 9), "tree is damaged: a tree of (9,) chunks takes 368 bytes, not 8"),
        (struct.pack("<I", 0), "the tree has 0 levels; the settings have 3"),
        (struct.pack("<4I", 3, 0, 0, 0), "level 0: no chunks"),
    ],
)
def test_a_tree_of_another_shape_is_found(store, value, problem):
    found = problems_after(store, lambda txn: put_part(txn, ADDRESS, "trees", value))
    assert any(line.startswith(IN_DOCUMENT + problem) for line in found)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (tree_with(0, 1, token_count=0), "level 0: a chunk is empty"),
        (tree_with(0, 1, token_count=33), "level 0: a chunk has over 32 tokens"),
        (tree_with(0, 0, token_start=1), "level 0: does not begin at the first token"),
        (tree_with(0, -1, token_count=1), "level 0: does not end at the last token"),
        (tree_with(0, 1, token_start=0), "level 0: chunks are out of order"),
        (tree_with(0, 1, token_start=40), "level 0: tokens between chunks are lost"),
        (tree_with(0, 1, byte_start=2**31), "level 0: byte spans are empty"),
        (tree_with(0, 0, byte_end=1), "level 0: byte spans leave gaps"),
        (tree_with(0, 0, byte_start=1), "level 0: byte spans leave gaps"),
        (tree_with(0, 1, char_end=0), "level 0: character spans are empty"),
        (tree_with(0, 0, char_end=1), "level 0: character spans leave gaps"),
        (tree_with(0, 1, parent=1), "level 0: children of a chunk are not consecutive"),
        (
            tree_with(1, 0, child_count=0),
            "level 0: children do not match the parents' child counts",
        ),
        (tree_with(1, 1, first_child=0), "level 0: first_child is wrong"),
        (tree_with(1, 1, byte_end=1), "level 0: a chunk leaves its parent's span"),
        (tree_with(2, 0, parent=0), "level 2: a chunk at the top has a parent"),
        (tree_with(1, 0, section=5), "a chunk refers to a missing section; the document has 0"),
    ],
)
def test_a_tree_that_breaks_a_rule_is_found(store, damage, problem):
    assert IN_DOCUMENT + problem in problems_after(store, damage)


def test_a_tree_of_another_text_is_found(store):
    fields = {"text_bytes": 10, "chunks_per_level": [1, 1, 1]}
    found = problems_after(store, lambda txn: document_with(txn, **fields))
    assert f"{IN_DOCUMENT}tree does not cover the text" in found
    assert any("chunks, its record says (1, 1, 1)" in problem for problem in found)


def test_the_struct_of_a_chunk_is_forty_bytes():
    assert CHUNK.itemsize == 40


# Tests of segments and of the list of commits.


def segment_with(**fields: object) -> Callable[[Txn], None]:
    """Returns a function that changes fields of the segment's record in the manifest."""

    def damage(txn: Txn) -> None:
        record = json.loads(bytes(txn.segments.get_data((1, 1))))
        data = json.dumps({**record, **fields}).encode()
        put_encoded(txn, "segments", schema.in_collection(1, 1), data)

    return damage


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (segment_with(first_ordinal=0), "segment 1 covers ordinals of the segment before it"),
        (
            segment_with(last_ordinal=2),
            "segments cover ordinals up to 2, but the counters say up to 1",
        ),
        (
            segment_with(last_ordinal=2),
            "segment 1: its leaves are not those of the living and deleted documents in its range",
        ),
        (
            segment_with(embedder="x"),
            "segment 1: its embedder, dimension or analyzer is not the collection's",
        ),
        (
            segment_with(dimension=8),
            "segment 1: its embedder, dimension or analyzer is not the collection's",
        ),
    ],
)
def test_a_segment_record_that_contradicts_the_store_is_found(store, damage, problem):
    assert f"collection t/c: {problem}" in problems_after(store, damage)


def test_a_missing_segment_record_is_found(store):
    found = problems_after(store, lambda txn: txn.segments.delete((1, 1)))
    assert found == (
        "collection t/c: no segment covers ordinal 1, which is not in the tail either",
        "collection t/c: deleted leaves are counted for segments that are not listed: [1]",
    )


@pytest.mark.parametrize("name", ["index.hnsw", "postings.bin", "rows.npz"])
def test_a_damaged_segment_file_is_found(store, name):
    path = segment_files.path_of(store.segments, 1) / name
    path.write_bytes(b"x" * path.stat().st_size)
    problems = check(store).problems
    assert len(problems) == 1
    assert problems[0].startswith("collection t/c: segment 1: ")
    assert problems[0].endswith(f"{name} does not have the checksum that the manifest says")
    path.unlink()
    assert "No such file" in check(store).problems[0]


def test_one_check_finds_all_problems(store):
    def damage(txn: Txn) -> None:
        delete_content(txn, ADDRESS)
        put_part(txn, schema.address(schema.u64(2), 1, 2), "vectors", b"")
        overwrite(txn, "texts", schema.u64(9), b"")

    found = problems_after(store, damage)
    assert len(found) == 3
    assert "ordinal 1" in found[0]
    assert "ordinal 2" in found[1]
    assert found[2] == "texts has slot 9, which no document has"


@pytest.mark.parametrize("at", [1, 2, -1])
def test_a_gap_in_the_list_of_commits_is_found(store, at):
    def damage(txn: Txn) -> None:
        txn.commits.delete(list(txn.commits.keys())[at])

    assert problems_after(store, damage) == (
        "the list of commits has gaps: 3 entries up to the last, 4",
    )
