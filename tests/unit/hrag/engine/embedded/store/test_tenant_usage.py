"""Tests of tenants' usage: each write updates the usage and checks the quota."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from hrag.engine.embedded.maintenance import reclaim
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import CollectionExists, HragError, StorageQuotaExceeded
from hrag.observe.metrics import INSTRUMENTS
from hrag.types import IngestOutcome, IngestResult, SummaryUnit
from hrag.values.quotas import Quota, TenantUsage
from hrag.values.tree import ParsedText
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.summary_model import ModelCollection, ModelSummaries, summarise
from tests.unit.hrag.engine.embedded.store.bits import flip


class Quotas:
    """One quota for all tenants, which a test can replace."""

    def __init__(self) -> None:
        self.quota = Quota()

    def __call__(self, _tenant_id: str) -> Quota:
        return self.quota

    def set(self, **bounds: int | None) -> None:
        self.quota = Quota(**bounds)


@pytest.fixture
def quotas() -> Quotas:
    return Quotas()


@pytest.fixture
def writer(store: Store, quotas: Quotas) -> EmbeddedWriter:
    writer = EmbeddedWriter(store, quota_of=quotas)
    writer.create_collection("t", "c", collection_settings())
    return writer


def put(writer: EmbeddedWriter, document_id: str, count: int = 5, seed: int = 0) -> IngestResult:
    document = prepared(document_id, sentences(count, seed), seed=seed)
    return writer.put(writer.open("t", "c"), document)


def used(writer: EmbeddedWriter, tenant_id: str = "t", name: str = "c") -> TenantUsage:
    """Returns a tenant's usage without its quota. The tenant must have a collection `name`."""
    return replace(writer.status(writer.open(tenant_id, name)).tenant, quota=Quota())


def test_the_stored_bytes_of_a_tenant_are_the_sum_over_its_document_records(store, writer):
    """`test_stored_bytes.py` tests that the file grows by about as many bytes."""
    put(writer, "a", 40)
    put(writer, "b", 3)
    with store.read() as txn:
        keys = list(txn.ordinals.keys())
        documents = [txn.documents.require(address_of(txn, *key)) for key in keys]
    assert used(writer).stored_bytes == sum(document.stored_bytes for document in documents)


def test_usage_is_the_sum_over_all_collections_of_the_tenant(writer):
    writer.create_collection("t", "c2", collection_settings())
    writer.create_collection("t2", "c", collection_settings())
    put(writer, "a")
    document_bytes = used(writer).stored_bytes
    for tenant_id, name in (("t", "c2"), ("t2", "c"), ("t2", "c")):
        writer.put(writer.open(tenant_id, name), prepared("a", sentences(5)))
    assert used(writer) == used(writer, name="c2") == TenantUsage(2, 2, 2 * document_bytes)
    assert used(writer, "t2") == TenantUsage(1, 1, document_bytes)


def test_a_deletion_frees_quota_at_once(store, writer):
    put(writer, "a")
    before = used(writer)
    put(writer, "b", 30)
    writer.delete(writer.open("t", "c"), "b")
    assert used(writer) == before
    writer.create_collection("t", "c2", collection_settings())
    writer.put(writer.open("t", "c2"), prepared("a", sentences(5)))
    writer.delete_collection("t", "c2")
    assert used(writer) == before
    writer.delete_collection("t", "c")
    with store.read() as txn:
        assert read_usage(txn, "t")[:3] == (0, 0, 0)
    while reclaim.reclaim_some(store):
        pass


def test_only_the_bytes_of_summaries_are_counted_and_they_are_never_refused(store, quotas, writer):
    settings = collection_settings(summaries=SummaryUnit.CHUNK)
    writer.create_collection("t", "s", settings)
    opened = writer.open("t", "s")
    document = prepared("a", sentences(40), settings)
    writer.put(opened, document)
    before = used(writer)
    assert before.collections == 2
    quotas.set(max_bytes=before.stored_bytes, max_documents=1, max_collections=1)
    model = ModelCollection(settings)
    assert summarise(writer, ModelSummaries(model)) == 1
    after = used(writer)
    assert (after.collections, after.documents) == (2, 1)
    assert after.stored_bytes > before.stored_bytes
    assert writer.put(opened, document).outcome is IngestOutcome.UNCHANGED
    quotas.set(max_bytes=before.stored_bytes)
    smaller = prepared("a", sentences(10, 1), settings, seed=1)
    assert writer.put(opened, smaller).outcome is IngestOutcome.UPDATED
    assert used(writer).stored_bytes < before.stored_bytes
    writer.delete_collection("t", "s")
    assert used(writer) == TenantUsage(1, 0, 0)


# Tests of writes beyond a quota.


def refused(act: Callable[[], object], quota: str) -> str:
    """Asserts that `act` exceeds the quota, and that a metric counts it. Returns the message."""
    labels = {"quota": quota}
    before = INSTRUMENTS.get_sample_value("hrag_quota_refusals_total", labels) or 0
    with pytest.raises(StorageQuotaExceeded) as caught:
        act()
    assert INSTRUMENTS.get_sample_value("hrag_quota_refusals_total", labels) == before + 1
    assert (caught.value.field, caught.value.tenant_id) == (quota, "t")
    assert caught.value.retry_s is None
    return caught.value.message


def test_bytes_are_stored_up_to_the_quota_and_not_one_more(writer, quotas):
    put(writer, "a", 20)
    first = used(writer).stored_bytes
    quotas.set(max_bytes=2 * first)
    assert put(writer, "b", 20).outcome is IngestOutcome.CREATED
    assert used(writer).stored_bytes == 2 * first
    writer.delete(writer.open("t", "c"), "b")
    quotas.set(max_bytes=2 * first - 1)
    before = used(writer)
    message = refused(lambda: put(writer, "b", 20), "bytes")
    for part in (f"{first:,} of the {2 * first - 1:,} bytes", f"least {first:,} more", "'t'"):
        assert part in message
    assert "HRAG_TENANT_MAX_BYTES" in message
    assert used(writer) == before


def test_documents_and_collections_are_stored_up_to_the_quota(writer, quotas):
    quotas.set(max_documents=2, max_collections=2)
    put(writer, "a")
    put(writer, "b")
    message = refused(lambda: put(writer, "c"), "documents")
    assert "2 of the 2 documents" in message
    assert "HRAG_TENANT_MAX_DOCUMENTS" in message
    writer.create_collection("t", "c2", collection_settings())
    refused(lambda: writer.create_collection("t", "c3", collection_settings()), "collections")
    with pytest.raises(CollectionExists):
        writer.create_collection("t", "c2", collection_settings())
    writer.delete_collection("t", "c2")
    writer.create_collection("t", "c3", collection_settings())
    writer.delete(writer.open("t", "c"), "a")
    assert put(writer, "c").outcome is IngestOutcome.CREATED


def test_an_update_is_counted_by_the_bytes_that_it_adds(writer, quotas):
    put(writer, "a", 20)
    small = used(writer).stored_bytes
    put(writer, "a", 40, seed=1)
    large = used(writer).stored_bytes
    quotas.set(max_bytes=large, max_documents=1)
    assert put(writer, "a", 40, seed=2).outcome is IngestOutcome.UPDATED
    assert put(writer, "a", 20).outcome is IngestOutcome.UPDATED
    quotas.set(max_bytes=large - 1)
    message = refused(lambda: put(writer, "a", 40, seed=1), "bytes")
    assert f"least {large - small:,} more" in message


def test_an_update_that_adds_no_bytes_is_stored_even_far_above_the_quota(writer, quotas):
    put(writer, "a", 20)
    put(writer, "b", 20)
    quotas.set(max_bytes=1, max_documents=1, max_collections=1)
    assert put(writer, "a", 20).outcome is IngestOutcome.UNCHANGED
    assert put(writer, "a", 10).outcome is IngestOutcome.UPDATED
    refused(lambda: put(writer, "a", 11), "bytes")
    writer.delete(writer.open("t", "c"), "b")


def test_of_a_batch_the_documents_that_fit_into_the_quota_are_stored(writer, quotas):
    put(writer, "a", 10)
    document_bytes = used(writer).stored_bytes
    quotas.set(max_bytes=3 * document_bytes)
    opened = writer.open("t", "c")
    batch = [prepared(name, sentences(count)) for name, count in (("b", 10), ("x", 60), ("c", 10))]
    batch += [prepared("d", sentences(10)), prepared("a", sentences(10))]
    results = writer.put_many([(opened, document) for document in batch])
    outcomes = [None if isinstance(result, HragError) else result.outcome for result in results]
    created, unchanged = IngestOutcome.CREATED, IngestOutcome.UNCHANGED
    assert outcomes == [created, None, created, None, unchanged]
    assert {result.field for result in results if isinstance(result, HragError)} == {"bytes"}
    assert used(writer) == TenantUsage(1, 3, 3 * document_bytes)


def test_a_refused_document_writes_nothing(store, writer, quotas):
    put(writer, "a")
    quotas.set(max_documents=1)
    transaction = store.env.info()["last_txnid"]
    refused(lambda: put(writer, "b"), "documents")
    assert store.env.info()["last_txnid"] == transaction


def test_admission_checks_the_quota_before_there_is_a_document(writer, quotas):
    put(writer, "a", 20)
    used_bytes = used(writer).stored_bytes
    quotas.set(max_bytes=used_bytes + 10)
    writer.admit("t", "c", "new", "", 10)
    refused(lambda: writer.admit("t", "c", "new", "", 11), "bytes")
    writer.admit("t", "c", "a", "", used_bytes + 10)
    refused(lambda: writer.admit("t", "c", "a", "", used_bytes + 11), "bytes")
    quotas.set(max_documents=1)
    writer.admit("t", "c", "a", "", 1 << 40)
    refused(lambda: writer.admit("t", "c", "new", "", 1), "documents")


@pytest.mark.parametrize("database", ["documents", "texts", "ordinals", "document_ids"])
def test_a_damaged_document_is_still_counted_when_it_is_replaced(store, writer, quotas, database):
    """A tenant that has used its whole quota can repair a document by ingesting it again."""
    put(writer, "a", 20)
    put(writer, "b", 20)
    before = used(writer)
    quotas.set(max_documents=2, max_bytes=before.stored_bytes)
    flip(store, database)
    content_hash = prepared("a", sentences(20)).content_hash
    assert writer.admit("t", "c", "a", content_hash, before.stored_bytes // 2).unchanged is None
    refused(lambda: put(writer, "a", 40), "bytes")
    assert put(writer, "a", 20).outcome is IngestOutcome.UPDATED
    assert used(writer) == before


def test_replacing_a_damaged_document_that_is_no_longer_counted_needs_quota(store, writer, quotas):
    for name in "ab":
        put(writer, name)
    for number in (1, 2):
        flip(store, "documents", schema.u64(number))
    quotas.set(max_documents=2)
    put(writer, "a")  # Counts the readable documents again.
    put(writer, "c")
    refused(lambda: put(writer, "b"), "documents")
    quotas.set(max_documents=3)
    assert put(writer, "b").outcome is IngestOutcome.UPDATED


def test_concurrent_writers_cannot_exceed_the_quota(writer, quotas):
    quotas.set(max_documents=7)
    outcomes = []

    def work(number: int) -> None:
        for n in range(5):
            try:
                outcomes.append(put(writer, f"d{number}-{n}", 2).outcome)
            except StorageQuotaExceeded:
                outcomes.append(None)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count(IngestOutcome.CREATED), outcomes.count(None)) == (7, 13)
    assert used(writer).documents == 7


def test_a_document_has_the_same_stored_bytes_in_every_collection(store, writer):
    put(writer, "a")
    first = used(writer).stored_bytes
    for number in range(12):
        writer.create_collection("t", f"c{number}", collection_settings())
    writer.put(writer.open("t", "c11"), prepared("a", ParsedText(sentences(5))))
    assert used(writer).stored_bytes == 2 * first
