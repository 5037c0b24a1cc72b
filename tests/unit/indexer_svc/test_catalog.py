"""The catalog lists, looks up and deletes stored documents and collections."""

import base64
import math
from typing import Any

import pytest

from hrag import errors
from hrag.filters import AllOf, Filter, Match
from hrag.types import Listing
from hrag.values.deadline import NEVER
from indexer_svc.stored_catalog import StoredCatalog
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, sentences


@pytest.fixture
def catalog(engine: Engine) -> StoredCatalog:
    """A catalog in which the tenant `t` has a collection `c` with the documents d0 to d4."""
    engine.writer.create_collection("t", "c", collection_settings())
    for number in range(5):
        engine.writer.put(engine.open(), prepared(f"d{number}", sentences(9, number), seed=number))
    return StoredCatalog(engine.writer)


def _name_of(item: Any) -> str:
    """Returns the id of a document or of a tenant, or the name of a collection."""
    return getattr(item, "document_id", "") or getattr(item, "name", "") or item.tenant_id


def _pages(page: Any, size: int) -> list[list[str]]:
    """Returns the names on each page of a listing, from the first page to the last."""
    pages, token = [], ""
    while True:
        listing: Listing[Any] = page(size, token)
        pages.append([_name_of(item) for item in listing.items])
        token = listing.next_page_token
        if not token:
            return pages


@pytest.mark.parametrize(
    ("size", "pages"),
    [
        (2, [["d0", "d1"], ["d2", "d3"], ["d4"]]),
        (5, [["d0", "d1", "d2", "d3", "d4"]]),
        (0, [["d0", "d1", "d2", "d3", "d4"]]),
        (1000, [["d0", "d1", "d2", "d3", "d4"]]),
    ],
)
def test_documents_are_listed_page_by_page_in_order(
    catalog: StoredCatalog, size: int, pages: list[list[str]]
) -> None:
    assert _pages(lambda *page: catalog.documents("t", "c", *page), size) == pages


def test_collections_are_listed_page_by_page_in_order(
    catalog: StoredCatalog, engine: Engine
) -> None:
    for name in ("b", "a", "d"):
        engine.writer.create_collection("t", name, collection_settings())
    engine.writer.create_collection("t2", "z", collection_settings())
    pages = _pages(lambda *page: catalog.collections("t", *page), 3)
    assert pages == [["a", "b", "c"], ["d"]]


def test_tenants_are_listed_page_by_page_in_order(catalog: StoredCatalog, engine: Engine) -> None:
    for name in ("b", "a", "d"):
        engine.writer.create_collection(name, "c", collection_settings())
    assert _pages(catalog.tenants, 3) == [["a", "b", "d"], ["t"]]
    for page, field in (((1_001, ""), "page_size"), ((5, "?"), "page_token")):
        with pytest.raises(errors.InvalidArgument) as refused:
            catalog.tenants(*page)
        assert refused.value.field == field


def test_a_page_has_a_hundred_entries_by_default(engine: Engine) -> None:
    for number in range(101):
        engine.writer.create_collection("t", f"c{number:03}", collection_settings())
    pages = _pages(lambda *page: StoredCatalog(engine.writer).collections("t", *page), 0)
    assert [len(page) for page in pages] == [100, 1]


def test_an_unknown_tenant_has_no_collections(catalog: StoredCatalog) -> None:
    assert catalog.collections("nobody", 0, "") == Listing((), "")


def test_a_listing_continues_correctly_after_changes_between_pages(
    catalog: StoredCatalog, engine: Engine
) -> None:
    first = catalog.documents("t", "c", 2, "")
    catalog.delete_document("t", "c", "d1")
    engine.writer.put(engine.open(), prepared("d0a", sentences(9, 9)))
    second = catalog.documents("t", "c", 9, first.next_page_token)
    assert [info.document_id for info in second.items] == ["d2", "d3", "d4"]


@pytest.mark.parametrize("size", [1001, 2**32 - 1])
def test_a_page_over_the_limit_is_refused(catalog: StoredCatalog, size: int) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"page_size is {size}.*0 to 1000") as caught:
        catalog.documents("t", "c", size, "")
    assert caught.value.field == "page_size"


@pytest.mark.parametrize(
    "token",
    [
        "d1",
        "not base64!",
        "ZDE",
        "ü",
        base64.urlsafe_b64encode(b"../etc").decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        base64.urlsafe_b64encode(b"d\0").decode(),
        "A" * 10_000,
    ],
)
@pytest.mark.parametrize("listing", ["documents", "collections"])
def test_an_invalid_page_token_is_refused(catalog: StoredCatalog, token: str, listing: str) -> None:
    key = ("t", "c") if listing == "documents" else ("t",)
    with pytest.raises(errors.InvalidArgument, match="next_page_token") as caught:
        getattr(catalog, listing)(*key, 0, token)
    assert caught.value.field == "page_token"
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("condition", "field"),
    [
        (Match("color", ("red",)), "filter.match.field"),
        (AllOf(()), "filter.all_of"),
        (Match("metadata.a", ()), "filter.match.values"),
        (Match("metadata.a", (math.nan,)), "filter.match.values"),
        (Match("metadata.a", ("x",) * 10_001), "filter"),
    ],
)
def test_a_filter_is_checked_before_anything_is_read(
    catalog: StoredCatalog, condition: Filter, field: str
) -> None:
    for call in (
        lambda: catalog.count("t", "missing", condition),
        lambda: catalog.documents("t", "missing", 0, "", condition),
    ):
        with pytest.raises(errors.InvalidArgument) as caught:
            call()
        assert caught.value.field == field


def test_a_document_is_found_with_its_text(catalog: StoredCatalog) -> None:
    info = catalog.document("t", "c", "d1")
    assert (info.document_id, info.title) == ("d1", "Title of d1")
    assert catalog.document_with_text("t", "c", "d1")[1] == sentences(9, 1)


def test_deleting_documents_without_a_filter_is_refused(catalog: StoredCatalog) -> None:
    with pytest.raises(errors.InvalidArgument, match="DeleteCollection") as caught:
        catalog.delete_documents("t", "c", None, NEVER)
    assert caught.value.field == "filter"
    with pytest.raises(errors.InvalidArgument, match="all_of is empty"):
        catalog.delete_documents("t", "c", AllOf(()), NEVER)
    assert catalog.collection("t", "c").document_count == 5


def test_a_deleted_document_is_not_found_any_more(catalog: StoredCatalog) -> None:
    before = catalog.status("t", "c")
    sequence = catalog.delete_document("t", "c", "d1")
    after = catalog.status("t", "c")
    assert after.committed_sequence == sequence == before.committed_sequence + 1
    assert after.document_count == 4
    for find in (catalog.document, catalog.document_with_text, catalog.delete_document):
        with pytest.raises(errors.DocumentNotFound, match="'d1'"):
            find("t", "c", "d1")


def test_a_deleted_collection_is_not_found_any_more(catalog: StoredCatalog) -> None:
    assert catalog.collection("t", "c").document_count == 5
    catalog.delete_collection("t", "c")
    for find in (catalog.collection, catalog.status, catalog.delete_collection):
        with pytest.raises(errors.CollectionNotFound):
            find("t", "c")
    with pytest.raises(errors.CollectionNotFound):
        catalog.document("t", "c", "d1")


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda c: c.collection("../t", "c"), "tenant_id"),
        (lambda c: c.collection("t", "c/d"), "name"),
        (lambda c: c.delete_collection("t", ""), "name"),
        (lambda c: c.collections("", 0, ""), "tenant_id"),
        (lambda c: c.documents("t", "\0", 0, ""), "collection"),
        (lambda c: c.document("t", "c", "a/b"), "document_id"),
        (lambda c: c.document_with_text("t", "c", ""), "document_id"),
        (lambda c: c.delete_document("t", "c", "d" * 129), "document_id"),
        (lambda c: c.status("т", "c"), "tenant_id"),
    ],
)
def test_invalid_names_are_refused_before_the_store_is_read(
    catalog: StoredCatalog, call: Any, field: str
) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        call(catalog)
    assert caught.value.field == field
