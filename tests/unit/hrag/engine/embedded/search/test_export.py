"""Tests of the export: it yields collections, and whole documents as they were stored."""

import numpy as np
import pytest

from hrag.engine import DocumentSummaries, Summary, Unsummarised
from hrag.errors import CollectionNotFound
from hrag.types import Collection, SummaryUnit
from hrag.values.tree import PageSpan, ParsedText, Section
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, sentences, unit_vectors

SETTINGS = collection_settings()


def exported_ids(engine: Engine, name: str = "c") -> list[str]:
    return [each.document.document_id for each in engine.reader.export("t", name)]


def test_the_collections_of_all_tenants_are_listed(engine):
    for tenant_id, name in (("u", "a"), ("t", "c"), ("t", "b")):
        engine.writer.create_collection(tenant_id, name, SETTINGS)
    engine.writer.create_collection("t", "s", collection_settings(summaries=SummaryUnit.SECTION))
    engine.writer.put(engine.open(), prepared("d", sentences(8)))
    found = list(engine.reader.collections())
    assert [(each.tenant_id, each.name) for each in found] == [
        ("t", "b"),
        ("t", "c"),
        ("t", "s"),
        ("u", "a"),
    ]
    assert found[1] == Collection("t", "c", SETTINGS, 1)


@pytest.mark.parametrize("sealed", [False, True])
def test_an_exported_document_equals_the_stored_one(engine, sealed):
    engine.writer.create_collection("t", "c", SETTINGS)
    text = f"{sentences(20)}\n\n漢字、かな。" * 2
    half = len(text) // 2
    parsed = ParsedText(
        text, (Section("Ä", 1, 3),), (PageSpan(7, 0, half), PageSpan(8, half, len(text)))
    )
    documents = [
        prepared("d2", parsed, metadata={"a": [1, {"b": None}]}),
        prepared("d1", sentences(9)),
    ]
    for document in documents:
        engine.writer.put(engine.open(), document)
    if sealed:
        engine.seal()
    first, second = engine.reader.export("t", "c")
    assert first.summaries is None
    for stored, document in ((first.document, documents[1]), (second.document, documents[0])):
        assert stored.tree.to_bytes() == document.tree.to_bytes()
        assert np.array_equal(stored.vectors, document.vectors)
        assert stored.vectors.dtype == np.float32
        for field in ("document_id", "title", "source", "mime_type", "metadata", "content_hash"):
            assert getattr(stored, field) == getattr(document, field)
        assert stored.parsed == document.parsed


def test_exported_summaries_have_the_leaves_that_they_summarise(engine):
    settings = collection_settings(summaries=SummaryUnit.SECTION)
    engine.writer.create_collection("t", "c", settings)
    documents = {name: prepared(name, sentences(20), settings) for name in ("new", "short", "long")}
    for document in documents.values():
        engine.writer.put(engine.open(), document)
    waiting: dict[str, Unsummarised] = {}
    while one := engine.writer.next_unsummarised(
        "fake", excluding={each.version for each in waiting.values()}
    ):
        waiting[one.document_id] = one
    leaves = range(len(documents["long"].vectors))
    summaries = (Summary("All of it.", leaves), Summary("The end.", leaves[3:]))
    vectors = unit_vectors(2, 5)
    assert engine.writer.put_summaries(waiting["long"], DocumentSummaries(summaries, vectors))
    assert engine.writer.put_summaries(waiting["short"], DocumentSummaries((), vectors[:0]))

    found = {each.document.document_id: each.summaries for each in engine.reader.export("t", "c")}
    assert found["new"] is None
    assert found["short"].summaries == ()
    assert found["short"].vectors.shape == (0, settings.dimension)
    assert found["long"].summaries == summaries
    assert np.array_equal(found["long"].vectors, vectors)


def test_the_collection_may_change_while_it_is_exported(engine):
    engine.writer.create_collection("t", "c", SETTINGS)
    for name in ("a", "c", "e"):
        engine.writer.put(engine.open(), prepared(name, sentences(8)))
    exported = engine.reader.export("t", "c")
    assert next(exported).document.document_id == "a"
    engine.writer.delete(engine.open(), "c")
    engine.writer.put(engine.open(), prepared("d", sentences(8)))
    engine.writer.put(engine.open(), prepared("A", sentences(8)))
    assert [each.document.document_id for each in exported] == ["d", "e"]
    assert exported_ids(engine) == ["A", "a", "d", "e"]


def test_an_export_ends_when_its_collection_is_deleted(engine):
    engine.writer.create_collection("t", "c", SETTINGS)
    for name in ("a", "b"):
        engine.writer.put(engine.open(), prepared(name, sentences(8)))
    exported = engine.reader.export("t", "c")
    next(exported)
    engine.writer.delete_collection("t", "c")
    engine.writer.create_collection("t", "c", SETTINGS)
    engine.writer.put(engine.open(), prepared("b", sentences(8)))
    assert list(exported) == []


def test_the_export_of_a_missing_collection_is_refused_at_once(engine):
    with pytest.raises(CollectionNotFound):
        engine.reader.export("t", "c")
