"""Tests of the totals of a store, which monitoring uses."""

from dataclasses import replace

import pytest

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.totals import measure
from hrag.engine.embedded.write.writer import EmbeddedWriter
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.unit.hrag.engine.embedded.store.bits import flip


@pytest.fixture
def writer(store):
    """A writer of two sealed collections with one document each, and of an alias."""
    writer = EmbeddedWriter(store)
    for name, count in (("a", 20), ("b", 30)):
        writer.create_collection("t", name, collection_settings())
        opened = writer.open("t", name)
        writer.put(opened, prepared("d", sentences(count)))
        seal(store, opened.collection_id)
    writer.set_alias("t", "alias", "a")
    return writer


def test_totals_count_each_collection_once(store, writer):
    totals = measure(store)
    statuses = [writer.status(writer.open("t", name)) for name in "ab"]
    assert (totals.collections, totals.documents, totals.embedded.segments) == (2, 2, 2)
    assert totals.leaves == sum(status.leaf_count for status in statuses)


def test_totals_leave_out_a_segment_whose_record_is_damaged(store, writer):
    before, (segment,) = measure(store), writer.status(writer.open("t", "a")).embedded.segments
    flip(store, "segments")
    totals = measure(store)
    flip(store, "segments")
    sizes = (totals.embedded.segments, totals.embedded.segment_bytes)
    assert sizes == (1, before.embedded.segment_bytes - segment.size_bytes)
    assert totals == replace(before, embedded=totals.embedded)


@pytest.mark.parametrize(("database", "collections"), [("counters", 2), ("collection_names", 1)])
def test_totals_still_count_other_collections_if_one_is_damaged(
    store, writer, database, collections
):
    key = schema.collection_name("t", "b") if database == "collection_names" else schema.u32(2)
    flip(store, database, key)
    totals = measure(store)
    flip(store, database, key)
    assert (totals.collections, totals.documents) == (collections, 1)
