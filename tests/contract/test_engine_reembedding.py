"""Every storage engine keeps these promises about the copy of a collection.

A copy is filled while a collection is embedded again, and then takes the collection's place.
"""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from hrag.engine.engine_documents import (
    DocumentSummaries,
    StoredDocument,
    Summary,
    UncopiedDocument,
)
from hrag.errors import (
    CollectionExists,
    CollectionNotFound,
    CopyInProgress,
    InvalidArgument,
    StorageQuotaExceeded,
)
from hrag.types import IngestOutcome, SummaryUnit
from hrag.values.quotas import Quota
from tests.support.documents.fakes import (
    collection_settings,
    prepared,
    query_vector,
    search_leaves,
    sentences,
    unit_vectors,
)

OLD = collection_settings()
NEW = replace(OLD, embedder="new", dimension=3)
ALL = (100, 1 << 30)


@pytest.fixture
def case(catalog):
    """An engine with the collection `docs`, which has the documents `d0` to `d3`."""
    catalog.writer.create_collection("t", "docs", OLD)
    for number in range(4):
        put(catalog, f"d{number}")
    return catalog


def put(case, document_id, seed=0, name="docs"):
    handle = case.writer.open("t", name)
    document = prepared(document_id, sentences(6, seed), handle.settings, seed=seed)
    return case.writer.put(handle, document)


def begin(case, name="docs", copy="docs-new"):
    return case.writer.begin_copy("t", name, copy, NEW)


def embedded(uncopied):
    """Returns the document with vectors of the new embedder."""
    document, summaries = uncopied.stored.document, uncopied.stored.summaries
    vectors = unit_vectors(len(document.vectors), 1, NEW.dimension)
    if summaries is not None:
        new = unit_vectors(len(summaries.summaries), 1, NEW.dimension)
        summaries = replace(summaries, vectors=new)
    return replace(uncopied, stored=StoredDocument(replace(document, vectors=vectors), summaries))


def summaries_of(document, settings):
    """Returns one summary, of the whole document."""
    leaves = range(document.tree.counts[settings.tree.embedding_level])
    vectors = unit_vectors(1, 1, settings.dimension)
    return DocumentSummaries((Summary("about it", leaves),), vectors)


def fill(case, source, after=""):
    """Copies all documents that the copy lacks; returns their ids."""
    uncopied = case.writer.uncopied(source, after, *ALL)
    assert case.writer.put_copies(source, list(map(embedded, uncopied))) == len(uncopied)
    return [document.stored.document_id for document in uncopied]


def ids(case, name):
    return [stored.document_id for stored in case.readers().export("t", name)]


def test_a_copy_takes_the_place_of_its_collection(case):
    case.writer.set_alias("t", "a", "docs")
    source, copy = begin(case)
    assert begin(case, "a") == (source, copy)
    assert fill(case, source) == ["d0", "d1", "d2", "d3"]
    before = case.readers().sequence("t")
    usage = case.writer.status(source).tenant
    assert case.writer.finish_copy(source) == before + 1
    for name in ("docs", "a"):
        opened = case.writer.open("t", name)
        assert (opened.collection_id, opened.name) == (copy.collection_id, "docs")
        assert opened.settings == NEW
        with case.snapshot("t", name) as snapshot:
            found = search_leaves(snapshot, query_vector(0, NEW.dimension), 100)
            assert {document_id for document_id, _ in found} == {"d0", "d1", "d2", "d3"}
            assert snapshot.name == "docs"
    assert [listed.name for listed in case.writer.collections("t", 10, "").items] == ["docs"]
    after = case.writer.status(case.writer.open("t", "docs")).tenant
    assert (after.collections, after.documents) == (1, 4)
    assert after.stored_bytes < usage.stored_bytes
    with pytest.raises(CollectionNotFound):
        case.writer.delete(source, "d0")
    again = prepared("d0", sentences(6), OLD)
    decision = case.writer.admit("t", "docs", "d0", again.content_hash)
    assert decision.unchanged.outcome is IngestOutcome.UNCHANGED


def test_a_copy_without_all_documents_takes_no_place(case):
    source, _ = begin(case)
    assert case.writer.finish_copy(source) is None
    fill(case, source)
    put(case, "d4")
    assert case.writer.finish_copy(source) is None
    assert fill(case, source) == ["d4"]
    assert case.writer.finish_copy(source) is not None


def test_a_changed_or_deleted_document_is_not_in_the_copy_any_more(case):
    source, _ = begin(case)
    fill(case, source)
    put(case, "d1", seed=1)
    case.writer.delete(source, "d2")
    assert ids(case, "docs-new") == ["d0", "d3"]
    assert put(case, "d3").outcome is IngestOutcome.UNCHANGED
    assert fill(case, source) == ["d1"]
    assert ids(case, "docs-new") == ids(case, "docs") == ["d0", "d1", "d3"]


def test_a_document_that_changed_since_it_was_read_is_not_copied(case):
    source, _ = begin(case)
    read = list(map(embedded, case.writer.uncopied(source, "", *ALL)))
    put(case, "d0", seed=1)
    case.writer.delete(source, "d1")
    sequence = case.writer.document(source, "d2").sequence
    case.writer.put_metadata(source, "d2", sequence, {"k": 1}, "s")
    assert case.writer.put_copies(source, read) == 1
    assert ids(case, "docs-new") == ["d3"]
    assert fill(case, source) == ["d0", "d2"]
    assert case.writer.document(case.writer.open("t", "docs-new"), "d2").metadata == {"k": 1}


def test_copying_a_document_twice_stores_it_once(case):
    source, copy = begin(case)
    read = list(map(embedded, case.writer.uncopied(source, "", *ALL)))
    for _ in range(2):
        assert case.writer.put_copies(source, read) == 4
    assert case.writer.count(copy, None).documents == 4


def test_metadata_changes_in_the_collection_and_in_its_copy(case):
    source, copy = begin(case)
    fill(case, source)
    sequence = case.writer.document(source, "d1").sequence
    case.writer.put_metadata(source, "d1", sequence, {"k": 1}, "s")
    copied = case.writer.document(copy, "d1")
    assert (copied.metadata, copied.source) == ({"k": 1}, "s")
    assert case.writer.uncopied(source, "", *ALL) == []


def test_uncopied_documents_come_in_order_and_within_limits(case):
    source, _ = begin(case)
    first = case.writer.uncopied(source, "", 2, 1 << 30)
    assert [document.stored.document_id for document in first] == ["d0", "d1"]
    case.writer.put_copies(source, list(map(embedded, first[1:])))
    after = case.writer.uncopied(source, "d0", 100, 1)
    assert [document.stored.document_id for document in after] == ["d2"]
    assert case.writer.uncopied(source, "d3", *ALL) == []


def test_only_the_copying_writes_to_a_copy(case):
    source, copy = begin(case)
    fill(case, source)
    with pytest.raises(CopyInProgress, match="'docs-new'"):
        put(case, "x", name="docs-new")
    sequence = case.writer.document(copy, "d0").sequence
    with pytest.raises(CopyInProgress):
        case.writer.put_metadata(copy, "d0", sequence, {}, "")
    with pytest.raises(CopyInProgress):
        begin(case, "docs-new", "third")
    case.writer.delete(copy, "d0")
    assert fill(case, source) == ["d0"]


def test_vectors_that_do_not_fit_the_copy_are_refused(case):
    source, _ = begin(case)
    with pytest.raises(InvalidArgument, match="vectors"):
        case.writer.put_copies(source, case.writer.uncopied(source, "", *ALL))
    assert ids(case, "docs-new") == []


def test_a_collection_has_one_copy(case):
    begin(case)
    with pytest.raises(CopyInProgress, match="docs-new"):
        begin(case, copy="other")
    with pytest.raises(CopyInProgress, match="embedder new"):
        case.writer.begin_copy("t", "docs", "docs-new", replace(NEW, embedder="newer"))
    with pytest.raises(CollectionExists):
        case.writer.create_collection("t", "docs-new", OLD)


def test_the_name_of_a_copy_must_be_free(case):
    case.writer.create_collection("t", "taken", OLD)
    with pytest.raises(CollectionExists, match="'taken'"):
        begin(case, copy="taken")
    assert case.writer.delete(case.writer.open("t", "docs"), "d0")
    with pytest.raises(CollectionNotFound):
        begin(case, "missing")


def test_a_copy_can_be_given_up(case):
    source, _ = begin(case)
    fill(case, source)
    case.writer.delete_collection("t", "docs-new")
    for call in (
        lambda: case.writer.uncopied(source, "", *ALL),
        lambda: case.writer.put_copies(source, [_document()]),
        lambda: case.writer.finish_copy(source),
    ):
        with pytest.raises(CollectionNotFound, match="copy"):
            call()
    put(case, "d0", seed=1)
    assert begin(case, copy="other")[0] == source


def _document():
    return UncopiedDocument(StoredDocument(prepared("d0", sentences(6), NEW)), 1)


def test_deleting_a_collection_deletes_its_copy(case):
    source, copy = begin(case)
    fill(case, source)
    case.writer.create_collection("t", "other", OLD)
    case.writer.delete_collection("t", "docs")
    assert [listed.name for listed in case.writer.collections("t", 10, "").items] == ["other"]
    used = case.writer.status(case.writer.open("t", "other")).tenant
    assert (used.collections, used.documents, used.stored_bytes) == (1, 0, 0)
    for handle in (source, copy):
        with pytest.raises(CollectionNotFound):
            case.writer.status(handle)


def test_a_copy_cannot_have_an_alias(case):
    begin(case)
    with pytest.raises(CopyInProgress, match="docs-new"):
        case.writer.set_alias("t", "a", "docs-new")


def test_a_copy_counts_against_the_quota(case):
    source = case.writer.open("t", "docs")
    used = case.writer.status(source).tenant
    for quota, name in (
        (Quota(max_collections=1), "collections"),
        (Quota(max_documents=7), "documents"),
        (Quota(max_bytes=used.stored_bytes + 10), "bytes"),
    ):
        case.quota = quota
        with pytest.raises(StorageQuotaExceeded) as caught:
            begin(case)
        assert caught.value.field == name
    case.quota = Quota(max_collections=2, max_documents=8)
    begin(case)
    case.quota = Quota(max_documents=6)
    read = list(map(embedded, case.writer.uncopied(source, "", *ALL)))
    with pytest.raises(StorageQuotaExceeded):
        case.writer.put_copies(source, read)
    assert ids(case, "docs-new") == []
    assert case.writer.put_copies(source, read[:2]) == 2


def test_summaries_are_copied_with_new_vectors(catalog):
    settings = collection_settings(summaries=SummaryUnit.CHUNK)
    new = replace(settings, embedder="new", dimension=3)
    writer = catalog.writer
    writer.create_collection("t", "docs", settings)
    handle = writer.open("t", "docs")
    for name in ("d0", "d1"):
        writer.put(handle, prepared(name, sentences(6), settings))
    summarised = writer.next_unsummarised("fake")
    writer.put_summaries(summarised, summaries_of(summarised, settings), 5)
    source, copy = writer.begin_copy("t", "docs", "docs-new", new)
    assert fill(catalog, source) == ["d0", "d1"]
    waiting = writer.next_unsummarised("fake")
    assert writer.next_unsummarised("new") is None
    writer.put_summaries(waiting, summaries_of(waiting, settings), 7)
    assert writer.finish_copy(source) is None
    assert fill(catalog, source) == [waiting.document_id]
    writer.finish_copy(source)
    status = writer.status(writer.open("t", "docs"))
    assert (status.summary_count, status.unsummarised_documents) == (2, 0)
    assert status.summary_tokens == 12
    assert writer.open("t", "docs").collection_id == copy.collection_id
    with catalog.snapshot("t", "docs", summaries=True) as snapshot:
        assert snapshot.name == "docs"


def test_a_check_reports_documents_that_only_the_copy_has(catalog):
    if catalog.connect is None and catalog.store is None:
        return  # An engine in memory has no check.
    writer = catalog.writer
    for name in ("docs", "whole"):
        writer.create_collection("t", name, OLD)
    put(catalog, "d0")
    source, copy = begin(catalog)
    fill(catalog, source)
    administration = catalog.engine.administration
    assert administration().check().problems == ()
    with _without_documents(catalog, source.collection_id):
        problems = administration().check().problems
        assert any("'d0' is only in the copy" in problem for problem in problems)
    assert administration().check().problems == ()
    assert copy.name == "docs-new"


@contextmanager
def _without_documents(case, number):
    """Hides the documents of a collection until the block ends."""
    if case.store is not None:
        with case.store.write() as txn:
            ordinal = txn.document_ids.require((number, "d0"))
            txn.document_ids.delete((number, "d0"))
        yield
        with case.store.write() as txn:
            txn.document_ids.put((number, "d0"), ordinal)
        return
    statement = "UPDATE hrag.documents SET document_id = %s WHERE collection_id = %s"
    with case.connect() as connection:
        connection.execute(statement, ("hidden", number))
    yield
    with case.connect() as connection:
        connection.execute(statement, ("d0", number))
