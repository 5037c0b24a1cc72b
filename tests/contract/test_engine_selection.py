"""What every storage engine promises about counting, listing and deleting by a filter."""

import pytest

from hrag.deadline import NEVER, Deadline
from hrag.engine.documents import PreparedDocument
from hrag.errors import Cancelled, CollectionNotFound, DeadlineExceeded
from hrag.filters import AllOf, AnyOf, Exists, Match, NoneOf, Range
from tests.fakes import prepared, query_vector, search_leaves, sentences
from tests.filter_model import passes

FILTERS = (
    Match("metadata.even", (True,)),
    Match("document_id", ("d3", "nothing", "d7")),
    Range("metadata.number", above=2, at_most=6),
    NoneOf((Match("metadata.even", (True,)),)),
    AllOf((Exists("metadata.number"), NoneOf((Match("title", ("Title of d1",)),)))),
    AnyOf((Match("metadata.number", (1,)), Match("metadata.even", (True,)))),
    Exists("metadata.nothing"),
    Exists("document_id"),
)
LATE = Deadline.after(-1)
GONE = Deadline.after(3_600, is_waiting=lambda: False)


def numbered(number: int, count: int = 2) -> PreparedDocument:
    """Document `d<number>` of `count` sentences, whose metadata says its number."""
    metadata = {"number": number, "even": number % 2 == 0}
    return prepared(f"d{number}", sentences(count, number), seed=number, metadata=metadata)


@pytest.fixture
def ten(catalog):
    """Ten documents, and one of each in another collection and of another tenant."""
    for place in (("t", "c"), ("t", "other"), ("t2", "c")):
        catalog.writer.create_collection(*place, catalog.model.settings)
        catalog.writer.put(catalog.writer.open(*place), numbered(3))
    for number in range(10):
        catalog.writer.put(catalog.collection, numbered(number))
        catalog.model.put(numbered(number))
    return catalog


def expected(case, given):
    """The ids of the model's documents that pass, in order."""
    documents = case.model.documents
    return sorted(name for name, each in documents.items() if given is None or passes(given, each))


def listed(case, given, size):
    """The ids on all pages of a listing, which are as long as they may be."""
    found, token = [], None
    while token != "":
        page = case.writer.documents(case.collection, size, token or "", filter=given)
        assert len(page.items) == size or not page.next_page_token
        found += [info.document_id for info in page.items]
        token = page.next_page_token
    return found


@pytest.mark.parametrize("given", [None, *FILTERS], ids=str)
def test_documents_that_pass_are_counted_and_listed_by_id(ten, given):
    count = ten.writer.count(ten.collection, given)
    assert (count.documents, count.total_documents) == (len(expected(ten, given)), 10)
    assert count.sequence == ten.readers().sequence("t")
    for size in (1, 3, 1000):
        assert listed(ten, given, size) == expected(ten, given)


def test_a_document_counts_by_what_it_is_now(ten):
    even = Match("metadata.even", (True,))
    replaced = prepared("d4", sentences(3), metadata={"even": False})
    ten.writer.put(ten.collection, replaced)
    ten.writer.delete(ten.collection, "d6")
    assert listed(ten, even, 10) == ["d0", "d2", "d8"]
    count = ten.writer.count(ten.collection, even)
    assert (count.documents, count.total_documents) == (3, 9)


def test_in_an_empty_collection_nothing_passes(ten):
    ten.writer.create_collection("t", "empty", ten.model.settings)
    empty = ten.writer.open("t", "empty")
    for given in (None, *FILTERS):
        count = ten.writer.count(empty, given)
        assert (count.documents, count.total_documents) == (0, 0)
        assert ten.writer.documents(empty, 10, "", filter=given).items == ()


@pytest.mark.parametrize(("deadline", "error"), [(LATE, DeadlineExceeded), (GONE, Cancelled)])
def test_nobody_filters_for_a_caller_who_has_left(ten, deadline, error):
    with pytest.raises(error, match="filtering"):
        ten.writer.count(ten.collection, FILTERS[0], deadline)
    with pytest.raises(error, match="filtering"):
        ten.writer.documents(ten.collection, 10, "", filter=FILTERS[0], deadline=deadline)


def test_a_deleted_collection_has_no_documents_to_count(ten):
    stale = ten.collection
    ten.writer.delete_collection("t", "c")
    for given in (None, FILTERS[0]):
        with pytest.raises(CollectionNotFound):
            ten.writer.count(stale, given)
        with pytest.raises(CollectionNotFound):
            ten.writer.documents(stale, 10, "", filter=given)


# Deleting


def deleted(case, given, deadline=NEVER):
    return sum(
        step.documents for step in case.writer.delete_matching(case.collection, given, deadline)
    )


@pytest.mark.parametrize("given", FILTERS, ids=str)
def test_exactly_what_passes_is_deleted(ten, given):
    before, gone = ten.readers().sequence("t"), expected(ten, given)
    steps = list(ten.writer.delete_matching(ten.collection, given))
    assert sum(step.documents for step in steps) == len(gone)
    assert steps[-1].sequence == ten.readers().sequence("t") == before + len(gone)
    kept = [name for name in expected(ten, None) if name not in gone]
    assert listed(ten, None, 100) == kept
    with ten.snapshot() as snapshot:
        found = search_leaves(snapshot, query_vector(1), 1000)
    assert {document_id for document_id, _ in found} == set(kept)
    assert deleted(ten, given) == 0
    for place in (("t", "other"), ("t2", "c")):
        assert ten.writer.count(ten.writer.open(*place), None).documents == 1


def test_deleting_many_takes_several_commits_and_frees_the_quota(catalog):
    catalog.create()
    used = catalog.writer.status(catalog.collection).tenant
    for number in range(150):
        catalog.writer.put(catalog.collection, numbered(number, count=1))
    steps = list(catalog.writer.delete_matching(catalog.collection, Exists("document_id")))
    assert len(steps) > 1
    assert sum(step.documents for step in steps) == 150
    assert catalog.writer.status(catalog.collection).tenant == used


def test_a_document_that_is_written_meanwhile_stays(catalog):
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


def test_a_document_whose_metadata_is_changed_meanwhile_stays(catalog):
    catalog.create()
    for number in range(150):
        catalog.writer.put(catalog.collection, numbered(number, count=1))
    given = Exists("metadata.number")
    steps = catalog.writer.delete_matching(catalog.collection, given)
    done = next(steps).documents
    sequence = catalog.writer.document(catalog.collection, "d149").sequence
    catalog.writer.put_metadata(catalog.collection, "d149", sequence, {"kept": True}, "")
    assert done + sum(step.documents for step in steps) == 149
    assert catalog.writer.document(catalog.collection, "d149").metadata == {"kept": True}


@pytest.mark.parametrize(("deadline", "error"), [(LATE, DeadlineExceeded), (GONE, Cancelled)])
def test_a_caller_who_has_left_deletes_nothing(ten, deadline, error):
    with pytest.raises(error):
        deleted(ten, Exists("document_id"), deadline)
    assert len(listed(ten, None, 100)) == 10


def test_what_was_deleted_before_the_deadline_stays_deleted(catalog):
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
    assert deleted(catalog, Exists("document_id")) == 150 - done


def test_a_collection_that_is_deleted_meanwhile_has_nothing_to_delete(ten):
    stale = ten.collection
    ten.writer.delete_collection("t", "c")
    with pytest.raises(CollectionNotFound):
        list(ten.writer.delete_matching(stale, Exists("document_id")))
