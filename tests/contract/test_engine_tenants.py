"""Every storage engine lists the tenants that have a collection, with what they store."""

from dataclasses import replace

import pytest

from hrag.errors import Cancelled, DeadlineExceeded
from hrag.types import SummaryUnit
from hrag.values.deadline import Deadline
from hrag.values.quotas import Quota
from tests.support.documents.fakes import collection_settings, prepared, sentences


def _listed(case, size):
    """Returns the tenants on all pages of the list. Fails if a page is longer than `size`."""
    tenants, token = [], None
    while token != "":
        page = case.writer.tenants(size, token or "")
        assert len(page.items) <= size
        tenants += page.items
        token = page.next_page_token
    return tenants


def _put(case, tenant_id, name, documents, **settings):
    """Creates a collection with some documents; returns its IndexStatus."""
    settings = replace(collection_settings(), **settings)
    case.writer.create_collection(tenant_id, name, settings)
    handle = case.writer.open(tenant_id, name)
    for number in range(documents):
        case.writer.put(handle, prepared(f"d{number}", sentences(9), settings, number))
    return case.writer.status(handle)


def test_a_tenant_is_listed_with_the_sums_of_its_collections(catalog):
    catalog.quota = Quota(max_documents=9)
    first = _put(catalog, "t", "c", 2)
    second = _put(catalog, "t", "summarised", 1, summaries=SummaryUnit.SECTION)
    other = _put(catalog, "t2", "c", 1)
    catalog.writer.set_alias("t", "alias", "c")
    tenant, next_tenant = _listed(catalog, 10)
    assert (tenant.tenant_id, next_tenant.tenant_id) == ("t", "t2")
    assert tenant.usage == catalog.writer.status(catalog.collection).tenant
    assert (tenant.usage.collections, tenant.usage.documents) == (2, 3)
    assert tenant.usage.quota == Quota(max_documents=9)
    assert tenant.leaf_count == first.leaf_count + second.leaf_count
    assert tenant.sequence == catalog.readers().sequence("t") == 6
    assert (next_tenant.usage, next_tenant.leaf_count) == (other.tenant, other.leaf_count)


def test_tenants_are_listed_by_id_in_pages(catalog):
    ids = ["a", "a-1", "a.b", "a0", "aa", "b"]
    for tenant_id in reversed(ids):
        _put(catalog, tenant_id, "c", 0)
    for size in (1, 2, 5, 6, 7):
        assert [tenant.tenant_id for tenant in _listed(catalog, size)] == ids
    assert [tenant.tenant_id for tenant in catalog.writer.tenants(9, "a.a").items] == ids[2:]


def test_a_tenant_without_a_collection_is_not_listed(catalog):
    assert _listed(catalog, 2) == []
    for tenant_id in ("a", "b", "c"):
        _put(catalog, tenant_id, "c", 1)
    catalog.writer.delete(catalog.writer.open("b", "c"), "d0")
    (_, emptied, _) = _listed(catalog, 2)
    assert (emptied.usage.documents, emptied.usage.stored_bytes, emptied.leaf_count) == (0, 0, 0)
    catalog.writer.delete_collection("b", "c")
    for size in (1, 2, 3):
        assert [tenant.tenant_id for tenant in _listed(catalog, size)] == ["a", "c"]
    # The next sequence number of the tenant is greater than all earlier ones.
    _put(catalog, "b", "c", 0)
    assert [tenant.sequence for tenant in _listed(catalog, 9)] == [2, 5, 2]


@pytest.mark.parametrize(
    ("deadline", "error"),
    [
        (Deadline.after(-1), DeadlineExceeded),
        (Deadline.after(3_600, is_waiting=lambda: False), Cancelled),
    ],
)
def test_listing_ends_if_its_caller_does_not_wait_any_longer(catalog, deadline, error):
    _put(catalog, "a", "c", 0)
    with pytest.raises(error, match="listing tenants"):
        catalog.writer.tenants(10, "", deadline)
