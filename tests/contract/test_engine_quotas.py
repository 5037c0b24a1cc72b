"""Every storage engine keeps these promises about the quotas of a tenant."""

from dataclasses import replace

import pytest

from hrag.errors import StorageQuotaExceeded
from hrag.types import IngestOutcome
from hrag.values.quotas import Quota
from tests.support.documents.fakes import collection_settings, prepared, sentences


@pytest.fixture
def stored(catalog):
    """An engine with a collection that has the documents `a` and `b`."""
    catalog.create()
    catalog.fill(*(prepared(name, sentences(9), seed=n) for n, name in enumerate("ab")))
    return catalog


def used(case):
    """Returns the TenantUsage of the tenant `t`."""
    return case.writer.status(case.collection).tenant


def test_the_usage_counts_all_collections_of_a_tenant_and_no_others(stored):
    first = used(stored)
    assert (first.collections, first.documents, first.quota) == (1, 2, Quota())
    for tenant_id, name in (("t", "c2"), ("t2", "c")):
        stored.writer.create_collection(tenant_id, name, collection_settings())
        handle = stored.writer.open(tenant_id, name)
        stored.writer.put(handle, prepared("a", sentences(9), seed=0))
    both = used(stored)
    assert (both.collections, both.documents) == (2, 3)
    assert both.stored_bytes == first.stored_bytes * 3 / 2
    stored.writer.delete_collection("t", "c2")
    assert used(stored) == first


def test_a_quota_of_collections_is_enforced(stored):
    stored.quota = Quota(max_collections=1)
    assert used(stored).quota == stored.quota
    with pytest.raises(StorageQuotaExceeded, match="'t' has 1 of the 1 collections") as refused:
        stored.writer.create_collection("t", "c2", collection_settings())
    assert (refused.value.field, refused.value.tenant_id) == ("collections", "t")
    stored.writer.create_collection("t2", "c2", collection_settings())
    stored.writer.delete_collection("t", "c")
    stored.writer.create_collection("t", "c2", collection_settings())


def test_a_quota_of_documents_is_enforced_by_admission_and_by_the_writer(stored):
    stored.quota = Quota(max_documents=2)
    new = prepared("new", sentences(3))
    for call in (
        lambda: stored.writer.put(stored.collection, new),
        lambda: stored.writer.admit("t", "c", "new", new.content_hash),
    ):
        with pytest.raises(StorageQuotaExceeded, match="2 of the 2 documents") as refused:
            call()
        assert refused.value.field == "documents"
    assert stored.readers().sequence("t") == 3
    for document in (stored.model.documents["a"], prepared("a", sentences(3))):
        stored.writer.admit("t", "c", "a", document.content_hash)
        stored.writer.put(stored.collection, document)
    stored.writer.delete(stored.collection, "b")
    assert stored.writer.put(stored.collection, new).outcome is IngestOutcome.CREATED


def test_a_quota_of_bytes_is_enforced_to_the_byte(stored):
    before = used(stored)
    new = prepared("c", sentences(9), seed=2)
    stored.writer.put(stored.collection, new)
    size = used(stored).stored_bytes - before.stored_bytes
    stored.writer.delete(stored.collection, "c")
    assert used(stored) == before
    stored.quota = Quota(max_bytes=before.stored_bytes + size - 1)
    with pytest.raises(StorageQuotaExceeded, match="bytes") as refused:
        stored.writer.put(stored.collection, new)
    assert refused.value.field == "bytes"
    assert stored.writer.admit("t", "c", "c", "", size - 1).unchanged is None
    with pytest.raises(StorageQuotaExceeded):
        stored.writer.admit("t", "c", "c", "", size)
    stored.quota = Quota(max_bytes=before.stored_bytes + size)
    stored.writer.put(stored.collection, new)


def test_a_document_that_does_not_grow_is_never_refused(stored):
    """Such a document is accepted even if the quota was lowered below the usage."""
    stored.quota = Quota(max_bytes=1, max_documents=1, max_collections=1)
    same = stored.model.documents["a"]
    admission = stored.writer.admit("t", "c", "a", same.content_hash, 10_000)
    assert admission.unchanged.outcome is IngestOutcome.UNCHANGED
    assert stored.writer.put(stored.collection, same).outcome is IngestOutcome.UNCHANGED
    smaller = prepared("a", sentences(3))
    assert stored.writer.put(stored.collection, smaller).outcome is IngestOutcome.UPDATED
    with pytest.raises(StorageQuotaExceeded):
        stored.writer.put(stored.collection, prepared("a", sentences(9)))


def test_the_quota_counts_earlier_documents_of_the_same_commit(stored):
    stored.quota = Quota(max_documents=3)
    documents = [prepared(name, sentences(3)) for name in ("x", "y", "x")]
    documents[2] = replace(documents[2], content_hash="another")
    results = stored.writer.put_many([(stored.collection, document) for document in documents])
    assert isinstance(results[1], StorageQuotaExceeded)
    assert [results[0].outcome, results[2].outcome] == [
        IngestOutcome.CREATED,
        IngestOutcome.UPDATED,
    ]
    assert used(stored).documents == 3
