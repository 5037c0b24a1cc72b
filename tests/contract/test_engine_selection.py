"""Every storage engine keeps these promises about counting, listing and deleting by a filter."""

from dataclasses import replace

import pytest

from hrag.engine.engine_documents import PreparedDocument
from hrag.errors import Cancelled, CollectionNotFound, DeadlineExceeded
from hrag.filters import AllOf, AnyOf, Exists, Match, NoneOf, Range
from hrag.values.deadline import NEVER, Deadline
from tests.support.documents.fakes import prepared, query_vector, search_leaves, sentences
from tests.support.engines.filter_model import passes

FILTERS = (
    Match("metadata.even", (True,)),
    Match("document_id", ("d3", "nothing", "d7")),
    Range("metadata.number", above=2, at_most=6),
    NoneOf((Match("metadata.even", (True,)),)),
    AllOf((Exists("metadata.number"), NoneOf((Match("title", ("Title of d1",)),)))),
    AnyOf((Match("metadata.number", (1,)), Match("metadata.even", (True,)))),
    Exists("metadata.nothing"),
    Exists("document_id"),
    Match("mime_type", ("text/markdown",)),
    Match("mime_type", ("Text/X-Markdown; charset=utf-8", "application/pdf")),
    Match("format", ("md",)),
    Match("format", ("MARKDOWN", ".txt")),
    AllOf((NoneOf((Match("format", ("txt",)),)), Match("metadata.even", (True,)))),
)
MIME_TYPES = ("text/plain", "text/markdown", "text/html")
EXPIRED = Deadline.after(-1)
CALLER_LEFT = Deadline.after(3_600, is_waiting=lambda: False)


def numbered(number: int, count: int = 2) -> PreparedDocument:
    """Returns the document `d<number>` with `count` sentences; its metadata contains `number`.

    The metadata says another format than the document has.
    """
    metadata = {"number": number, "even": number % 2 == 0, "format": "md", "mime_type": "x"}
    document = prepared(f"d{number}", sentences(count, number), seed=number, metadata=metadata)
    return replace(document, mime_type=MIME_TYPES[number % len(MIME_TYPES)])


@pytest.fixture
def ten(catalog):
    """An engine with ten documents in the collection `c` of the tenant `t`.

    The document `d3` is also in another collection of `t`, and in one of another tenant.
    """
    for tenant_id, name in (("t", "c"), ("t", "other"), ("t2", "c")):
        catalog.writer.create_collection(tenant_id, name, catalog.model.settings)
        catalog.writer.put(catalog.writer.open(tenant_id, name), numbered(3))
    for number in range(10):
        catalog.writer.put(catalog.collection, numbered(number))
        catalog.model.put(numbered(number))
    return catalog


def expected(case, filter):
    """Returns the ids of the model's documents that pass a filter, sorted."""
    return sorted(
        name
        for name, document in case.model.documents.items()
        if filter is None or passes(filter, document)
    )


def listed(case, filter, size):
    """Returns the ids on all pages of a listing.

    Fails if a page has fewer than `size` documents and is not the last page.
    """
    ids, token = [], None
    while token != "":
        page = case.writer.documents(case.collection, size, token or "", filter=filter)
        assert len(page.items) == size or not page.next_page_token
        ids += [info.document_id for info in page.items]
        token = page.next_page_token
    return ids


@pytest.mark.parametrize("filter", [None, *FILTERS], ids=str)
def test_documents_that_pass_a_filter_are_counted_and_listed_by_id(ten, filter):
    count = ten.writer.count(ten.collection, filter)
    assert (count.documents, count.total_documents) == (len(expected(ten, filter)), 10)
    assert count.sequence == ten.readers().sequence("t")
    for size in (1, 3, 1000):
        assert listed(ten, filter, size) == expected(ten, filter)


def test_a_filter_applies_to_the_current_version_of_a_document(ten):
    even = Match("metadata.even", (True,))
    replaced = prepared("d4", sentences(3), metadata={"even": False})
    ten.writer.put(ten.collection, replaced)
    ten.writer.delete(ten.collection, "d6")
    assert listed(ten, even, 10) == ["d0", "d2", "d8"]
    count = ten.writer.count(ten.collection, even)
    assert (count.documents, count.total_documents) == (3, 9)


def test_a_filter_by_format_follows_a_document_that_is_stored_in_another_format(ten):
    markdown = Match("format", ("md",))
    assert listed(ten, markdown, 10) == ["d1", "d4", "d7"]
    replaced = prepared("d4", sentences(3))
    ten.writer.put(ten.collection, replaced)
    ten.writer.delete(ten.collection, "d7")
    assert listed(ten, markdown, 10) == ["d1"]
    assert listed(ten, Match("metadata.format", ("md",)), 10) == [
        f"d{number}" for number in range(10) if number not in (4, 7)
    ]


def test_no_document_of_an_empty_collection_passes(ten):
    ten.writer.create_collection("t", "empty", ten.model.settings)
    empty = ten.writer.open("t", "empty")
    for filter in (None, *FILTERS):
        count = ten.writer.count(empty, filter)
        assert (count.documents, count.total_documents) == (0, 0)
        assert ten.writer.documents(empty, 10, "", filter=filter).items == ()


@pytest.mark.parametrize(
    ("deadline", "error"), [(EXPIRED, DeadlineExceeded), (CALLER_LEFT, Cancelled)]
)
def test_filtering_ends_if_its_caller_does_not_wait_any_longer(ten, deadline, error):
    with pytest.raises(error, match="filtering"):
        ten.writer.count(ten.collection, FILTERS[0], deadline)
    with pytest.raises(error, match="filtering"):
        ten.writer.documents(ten.collection, 10, "", filter=FILTERS[0], deadline=deadline)


def test_a_deleted_collection_has_no_documents_to_count(ten):
    stale = ten.collection
    ten.writer.delete_collection("t", "c")
    for filter in (None, FILTERS[0]):
        with pytest.raises(CollectionNotFound):
            ten.writer.count(stale, filter)
        with pytest.raises(CollectionNotFound):
            ten.writer.documents(stale, 10, "", filter=filter)


# Tests of deleting by a filter.


def delete(case, filter, deadline=NEVER):
    """Deletes the documents that pass a filter; returns their count."""
    steps = case.writer.delete_matching(case.collection, filter, deadline)
    return sum(step.documents for step in steps)


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_exactly_the_documents_that_pass_the_filter_are_deleted(ten, filter):
    before, passing = ten.readers().sequence("t"), expected(ten, filter)
    steps = list(ten.writer.delete_matching(ten.collection, filter))
    assert sum(step.documents for step in steps) == len(passing)
    assert steps[-1].sequence == ten.readers().sequence("t") == before + len(passing)
    remaining = [name for name in expected(ten, None) if name not in passing]
    assert listed(ten, None, 100) == remaining
    with ten.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query_vector(1), 1000)
    assert {document_id for document_id, _ in leaves} == set(remaining)
    assert delete(ten, filter) == 0
    for tenant_id, name in (("t", "other"), ("t2", "c")):
        assert ten.writer.count(ten.writer.open(tenant_id, name), None).documents == 1


def test_deleting_many_documents_takes_several_commits_and_frees_the_quota(catalog):
    catalog.create()
    used = catalog.writer.status(catalog.collection).tenant
    for number in range(150):
        catalog.writer.put(catalog.collection, numbered(number, count=1))
    steps = list(catalog.writer.delete_matching(catalog.collection, Exists("document_id")))
    assert len(steps) > 1
    assert sum(step.documents for step in steps) == 150
    assert catalog.writer.status(catalog.collection).tenant == used


def test_a_document_that_is_written_during_the_deletion_stays(catalog):
    catalog.create()
    for number in range(150):
        catalog.writer.put(catalog.collection, numbered(number, count=1))
    steps = catalog.writer.delete_matching(catalog.collection, Exists("document_id"))
    done = next(steps).documents
    replaced, new = numbered(149, count=2), numbered(150)
    catalog.writer.put(catalog.collection, replaced)
    catalog.writer.put(catalog.collection, new)
    catalog.writer.delete(catalog.collection, "d148")
    assert done + sum(step.documents for step in steps) == 148
    assert sorted(listed(catalog, None, 100)) == ["d149", "d150"]


def test_a_document_whose_metadata_is_changed_during_the_deletion_stays(catalog):
    catalog.create()
    for number in range(150):
        catalog.writer.put(catalog.collection, numbered(number, count=1))
    filter = Exists("metadata.number")
    steps = catalog.writer.delete_matching(catalog.collection, filter)
    done = next(steps).documents
    sequence = catalog.writer.document(catalog.collection, "d149").sequence
    catalog.writer.put_metadata(catalog.collection, "d149", sequence, {"changed": True}, "")
    assert done + sum(step.documents for step in steps) == 149
    assert catalog.writer.document(catalog.collection, "d149").metadata == {"changed": True}


@pytest.mark.parametrize(
    ("deadline", "error"), [(EXPIRED, DeadlineExceeded), (CALLER_LEFT, Cancelled)]
)
def test_nothing_is_deleted_if_the_caller_does_not_wait_any_longer(ten, deadline, error):
    with pytest.raises(error):
        delete(ten, Exists("document_id"), deadline)
    assert len(listed(ten, None, 100)) == 10


def test_documents_deleted_before_the_caller_left_stay_deleted(catalog):
    catalog.create()
    for number in range(150):
        catalog.writer.put(catalog.collection, numbered(number, count=1))
    waiting = [True]
    deadline = Deadline.after(60, is_waiting=lambda: waiting[0])
    steps = catalog.writer.delete_matching(catalog.collection, Exists("document_id"), deadline)
    done = next(steps).documents
    waiting[0] = False
    with pytest.raises(Cancelled, match="deleting"):
        next(steps)
    assert catalog.writer.count(catalog.collection, None).documents == 150 - done
    assert delete(catalog, Exists("document_id")) == 150 - done


def test_a_deleted_collection_has_no_documents_to_delete(ten):
    stale = ten.collection
    ten.writer.delete_collection("t", "c")
    with pytest.raises(CollectionNotFound):
        list(ten.writer.delete_matching(stale, Exists("document_id")))
