"""Tests of records: decoding the bytes of a record gives an equal record."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.common.records import (
    CollectionRecord,
    DocumentRecord,
    Usage,
    decoded,
    encoded,
)
from hrag.engine.embedded.store.lmdb_records import Change, Counters, SegmentFile, SegmentRecord
from hrag.errors import InvalidArgument
from hrag.types import CollectionSettings, Original, Segment, TreeSettings
from hrag.values.read_report import PageUnit
from hrag.values.tree import PageSpan, ParsedText, Section

u64s = st.integers(0, 2**64 - 1)

DOCUMENT = DocumentRecord(
    collection=3,
    document_id="guide",
    title="Über 指南 🙂",
    source="s",
    mime_type="text/markdown",
    metadata={"n": 1, "x": 0.5, "deep": {"list": [None, True, "ü"]}},
    content_hash="abc",
    sections=(Section("One", 1, 0), Section('Quoted "two"', 2, 10)),
    pages=(PageSpan(1, 0, 10), PageSpan(2, 10, 40)),
    chunks_per_level=(5, 2, 1),
    leaf_count=5,
    token_count=90,
    text_bytes=400,
    vector_bytes=320,
    stored_bytes=900,
    sequence=17,
)
SEGMENT = SegmentRecord(
    segment_id=2,
    space="ip",
    embedder="fake",
    dimension=16,
    rows=10,
    items=9,
    first_ordinal=1,
    last_ordinal=4,
    covered_sequence=8,
    files={"index": SegmentFile(100, "aa"), "rows": SegmentFile(11, "bb")},
)


@pytest.mark.parametrize("return_level", [None, 1])
def test_a_decoded_collection_record_equals_the_original(return_level):
    tree = TreeSettings((40, 90), 0.3, 1)
    record = CollectionRecord("t", "c", CollectionSettings(tree, "fake/x", 7, return_level))
    assert CollectionRecord.from_bytes(memoryview(record.to_bytes())) == record


@pytest.mark.parametrize("of_settings", [True, False])
def test_a_record_of_a_newer_version_is_refused_with_the_names_of_its_fields(of_settings):
    tree = TreeSettings((40, 90), 0.3, 1)
    fields = decoded(CollectionRecord("t", "c", CollectionSettings(tree, "e", 7)).to_bytes())
    (fields["settings"] if of_settings else fields)["keep_pictures"] = True
    with pytest.raises(InvalidArgument, match=r"'c' of the tenant 't' has keep_pictures, .* newer"):
        CollectionRecord.from_bytes(encoded(fields))


def test_a_setting_and_an_original_are_encoded_only_if_they_exist():
    tree = TreeSettings((40, 90), 0.3, 1)
    plain = CollectionSettings(tree, "fake/x", 7)
    for keeps in (False, True):
        record = CollectionRecord("t", "c", replace(plain, keep_originals=keeps))
        assert (b"keep_originals" in record.to_bytes()) is keeps
        assert CollectionRecord.from_bytes(record.to_bytes()) == record
    document = replace(DOCUMENT, original=Original(123, "ab" * 32))
    for record_bytes in (document.to_bytes(), document.to_short_bytes()):
        assert DocumentRecord.from_bytes(record_bytes) == document
    assert b'["text/markdown",123,"abab' in document.to_short_bytes()
    assert b',"text/markdown",' in DOCUMENT.to_short_bytes()
    assert (document.info().original_bytes, DOCUMENT.info().original_bytes) == (123, 0)


def test_a_decoded_document_record_equals_the_original():
    assert DocumentRecord.from_bytes(memoryview(DOCUMENT.to_bytes())) == DOCUMENT
    bare = replace(DOCUMENT, sections=(), pages=(), metadata={})
    assert DocumentRecord.from_bytes(bare.to_bytes()) == bare


def test_rows_and_recognised_pages_are_decoded_and_counted():
    pages = (PageSpan(1, 0, 10, is_recognised=True), PageSpan(2, 10, 40))
    record = replace(DOCUMENT, pages=pages)
    assert (record.info().page_unit, record.info().recognised_page_count) == (PageUnit.PAGE, 1)
    for unit in PageUnit:
        changed = replace(record, page_unit=unit)
        assert DocumentRecord.from_bytes(changed.to_bytes()) == changed
        assert DocumentRecord.from_bytes(changed.to_short_bytes()) == changed
        assert changed.parsed(b"text") == ParsedText("text", record.sections, pages, unit)


def test_the_bytes_of_a_record_without_rows_and_recognised_pages_are_those_of_old_stores():
    """Stores that were written before pages had units have such bytes."""
    old = (
        b'[3,"guide","","s","text/markdown","abc",[["One",1,0]],[[1,0,10],[2,10,40]],[5,2,1],5,90,'
        b'400,320,900,17,{"n":1}]'
    )
    record = replace(DOCUMENT, title="", sections=(Section("One", 1, 0),), metadata={"n": 1})
    assert record.to_short_bytes() == old
    assert DocumentRecord.from_bytes(old) == record


def test_a_record_keeps_the_source_with_which_its_document_was_ingested():
    assert (DOCUMENT.source, DOCUMENT.name_source, DOCUMENT.indexed_source) == ("s", "s", None)
    moved = DOCUMENT.described_by({"n": 2}, b"", "elsewhere").described_by({}, b"", "")
    assert (moved.source, moved.name_source, moved.metadata) == ("", "s", {})
    assert (moved.info().source, moved.outline().name_source) == ("", "s")
    for packed in (moved.to_bytes(), moved.to_short_bytes()):
        assert DocumentRecord.from_bytes(packed) == moved
    assert moved.described_by(DOCUMENT.metadata, b"", "s") == DOCUMENT


def test_the_info_of_a_document_counts_its_sections_and_pages():
    info = DOCUMENT.info()
    assert (info.section_count, info.page_count) == (2, 2)
    assert (info.document_id, info.metadata, info.sequence) == ("guide", DOCUMENT.metadata, 17)


def test_a_decoded_segment_record_equals_the_original():
    record = SegmentRecord.from_bytes(memoryview(SEGMENT.to_bytes()))
    assert record == SEGMENT
    assert record.size_bytes == 111
    assert record.info() == Segment(2, 10, 111, 8)


@given(st.lists(u64s, min_size=len(Counters._fields), max_size=len(Counters._fields)))
def test_decoded_counters_equal_the_original(numbers):
    counters = Counters(*numbers)
    assert Counters.from_bytes(memoryview(counters.to_bytes())) == counters


@given(u64s, u64s, u64s, u64s)
def test_a_decoded_usage_equals_the_original(collections, documents, size, sequence):
    usage = Usage(collections, documents, size, sequence)
    assert Usage.from_bytes(memoryview(usage.to_bytes())) == usage
    assert usage.plus(Usage(1, 2, 3)).plus(Usage(-1, -2, -3)) == usage


@given(u64s, u64s)
def test_a_decoded_change_equals_the_original(added, removed):
    change = Change(added, removed)
    assert Change.from_bytes(memoryview(change.to_bytes())) == change


def test_counters_change_when_a_document_is_added_and_removed():
    before = Counters(documents=1, chunks=4, leaves=3, tail_leaves=3, tokens=50, sealed_ordinal=5)
    after = before.plus(DOCUMENT, 6, 1)
    assert after == before._replace(
        documents=2,
        chunks=12,
        leaves=8,
        tail_leaves=8,
        tokens=140,
        text_bytes=400,
        vector_bytes=320,
        stored_bytes=900,
    )
    assert after.plus(DOCUMENT, 6, -1) == before


def test_only_leaves_after_the_sealed_ordinal_are_counted_as_tail():
    before = Counters(documents=1, leaves=9, tail_leaves=4, chunks=20, tokens=900, sealed_ordinal=5)
    before = before._replace(text_bytes=4000, vector_bytes=3200, stored_bytes=9000)
    assert before.plus(DOCUMENT, 5, -1).tail_leaves == 4
    assert before.plus(DOCUMENT, 6, 1).tail_leaves == 9
