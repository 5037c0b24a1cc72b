"""Running services enforce the quotas of settings and quota file; refusals have details."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import environ
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.cli.processes import RETRIEVER
from hrag.client import AsyncClient
from hrag.errors import (
    RateQuotaExceeded,
    StorageQuotaExceeded,
)
from hrag.types import (
    Document,
    IngestOutcome,
    IngestResult,
    SearchQuery,
    SettingsRequest,
    SummaryUnit,
)
from hrag.v1 import indexer_pb2, types_pb2
from hrag.values.quotas import Quota
from tests.support.engines.summary_model import wait_until_summarised
from tests.support.servers.metrics_page import Scrape
from tests.support.servers.processes import FAST, Running, running
from tests.support.until import PATIENCE_S, until

TEXT = "Cats sleep all day. They dream of mice and fish. " * 20
# Each of these tenants has a separate quota.
EXCEPTIONS = """
[noisy]
calls_per_s = 0.01
burst = 2
[batches]
calls_per_s = 0.01
burst = 5
[streaming]
calls_per_s = 40
burst = 1
[full]
max_documents = 1
[summarised]
max_documents = 1
max_collections = 1
["a.b"]
max_bytes = 12_000
[one-collection]
max_collections = 1
[crowded]
max_documents = 9
[usage]
max_bytes = 5_000_000
calls_per_s = 50
"""


@pytest.fixture(scope="module")
def exceptions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quota file of the services."""
    path = tmp_path_factory.mktemp("quotas") / "quotas.toml"
    path.write_text(EXCEPTIONS, "ascii")
    return path


def _rewrite(services: Running, path: Path, text: str, event: str = "reloaded") -> None:
    """Rewrites the file and waits until the indexer has logged the event.

    A service checks the file when it is called, at most once a second.
    """
    logged = services.indexer.log.count(f"] {event} ")
    # A file that is rewritten in place is empty for a moment.
    whole = path.with_suffix(".new")
    whole.write_text(text, "ascii")
    whole.replace(path)

    def has_noticed() -> bool:
        services.client.list_collections("probe")
        return services.indexer.log.count(f"] {event} ") > logged

    until(has_noticed)


@pytest.fixture(scope="module")
def bounded(
    exceptions: Path, metrics_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Services with a quota of 50 documents per tenant. The quota file has exceptions."""
    settings = {
        "HRAG_TENANT_MAX_DOCUMENTS": "50",
        "HRAG_TENANT_QUOTAS_FILE": str(exceptions),
        "HRAG_INDEXER_METRICS_ADDRESS": metrics_address,
    }
    with running(tmp_path_factory.mktemp("bounded") / "store", {**FAST, **settings}) as both:
        yield both


def _details(failure: grpc.RpcError) -> dict[str, Any]:
    status = rpc_status.from_call(failure)
    kinds = (
        error_details_pb2.ErrorInfo(),
        error_details_pb2.RetryInfo(),
        error_details_pb2.QuotaFailure(),
        error_details_pb2.BadRequest(),
    )
    return {
        kind.DESCRIPTOR.name: kind
        for kind in kinds
        if any(detail.Unpack(kind) for detail in status.details)
    }


def _calls(call: Callable[[str], object], tenant: str, count: int) -> list[RateQuotaExceeded]:
    """Makes `count` calls in a row and returns the refusals."""
    refused = []
    for _ in range(count):
        try:
            call(tenant)
        except RateQuotaExceeded as error:
            refused.append(error)
    return refused


def test_a_tenant_above_its_rate_is_refused_and_others_are_not(bounded, tenant):
    client = bounded.client
    for tenant_id in ("noisy", tenant):
        client.ingest(tenant_id, Document(TEXT, "cats"))
    for call in (lambda who: client.search(who, "cats"), client.index_status):
        refused = _calls(call, "noisy", 6)
        assert 1 <= len(refused) <= 5
        assert all(0 < error.retry_s <= 100 for error in refused)
        assert {(error.tenant_id, error.field) for error in refused} == {("noisy", "calls")}
        assert not _calls(call, tenant, 20)
    assert "reason=RATE_QUOTA_EXCEEDED" in bounded.retriever.log


def test_a_batch_counts_as_many_calls_as_it_has_searches(bounded):
    bounded.client.ingest("batches", Document(TEXT, "cats"))
    query = SearchQuery("batches", "cats")
    assert len(bounded.client.batch_search([query] * 4)) == 4
    with pytest.raises(RateQuotaExceeded):
        bounded.client.batch_search([query] * 2)
    assert bounded.client.batch_search([query])


def test_a_stream_is_throttled_to_the_rate_and_loses_nothing(bounded):
    documents = [Document(f"Number {n}.", f"d{n}") for n in range(21)]
    began = time.perf_counter()
    results = list(bounded.client.ingest_many("streaming", documents))
    assert time.perf_counter() - began >= 20 / 40
    assert [result.document_id for result in results] == [f"d{n}" for n in range(21)]


def test_a_refusal_names_the_quota_and_neither_sdk_retries(bounded, metrics_address):
    bounded.client.ingest("full", Document(TEXT, "a"))

    def refused() -> float:
        return Scrape(metrics_address).total("hrag_quota_refusals_total", quota="documents")

    def logged() -> int:
        ended = [line for line in bounded.indexer.log.splitlines() if "] call " in line]
        return sum("reason=STORAGE_QUOTA_EXCEEDED" in line for line in ended)

    before, logged_before = refused(), logged()
    request = indexer_pb2.IngestDocumentRequest(
        tenant_id="full", document=types_pb2.Document(document_id="b", text="Dogs bark.")
    )
    with pytest.raises(grpc.RpcError) as caught:
        bounded.raw_indexer.IngestDocument(request, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    details = _details(caught.value)
    assert details.keys() == {"ErrorInfo", "QuotaFailure"}
    assert details["ErrorInfo"].reason == "STORAGE_QUOTA_EXCEEDED"
    (violation,) = details["QuotaFailure"].violations
    assert (violation.subject, violation.quota_metric) == ("tenant:full", "documents")
    assert "1 of the 1 documents" in caught.value.details()
    assert "HRAG_TENANT_MAX_DOCUMENTS" in caught.value.details()
    assert ("grpc-retry-pushback-ms", "-1") in caught.value.trailing_metadata()
    assert refused() == before + 1
    with pytest.raises(StorageQuotaExceeded) as storage_error:
        bounded.client.ingest("full", Document("Dogs bark.", "b"))
    assert (storage_error.value.retry_s, storage_error.value.field) == (None, "documents")
    asyncio.run(_refused_by_aio(bounded.indexer.address))
    assert refused() == before + 3
    assert logged() == logged_before + 3


async def _refused_by_aio(address: str) -> None:
    async with AsyncClient(address) as client:
        with pytest.raises(StorageQuotaExceeded):
            await client.ingest("full", Document("Dogs bark.", "b"))


def test_only_documents_above_the_quota_fail_in_a_stream(bounded):
    documents = [Document(TEXT, "a"), Document(TEXT, "b"), Document(TEXT * 9, "large")]
    documents += [Document("Dogs bark.", "c"), Document(TEXT, "a"), Document("Fish swim.", "a")]
    results = list(bounded.client.ingest_many("a.b", documents))
    outcomes = [
        result.outcome if isinstance(result, IngestResult) else type(result) for result in results
    ]
    created, updated = IngestOutcome.CREATED, IngestOutcome.UPDATED
    unchanged = IngestOutcome.UNCHANGED
    assert outcomes == [created, created, StorageQuotaExceeded, created, unchanged, updated]
    assert results[2].field == "bytes"
    assert bounded.client.search("a.b", "cats").passages


def test_the_first_ingest_creates_no_collection_above_the_quota(bounded):
    client, tenant = bounded.client, "one-collection"
    client.create_collection(tenant, "own")
    with pytest.raises(StorageQuotaExceeded) as caught:
        client.ingest(tenant, Document(TEXT, "a"))
    assert caught.value.field == "collections"
    client.ingest(tenant, Document(TEXT, "a"), collection="own")
    client.delete_collection(tenant, "own")
    client.ingest(tenant, Document(TEXT, "a"))
    assert client.index_status(tenant).tenant.collections == 1


def test_concurrent_ingests_cannot_exceed_a_quota(bounded):
    stored: list[bool] = []

    def work(number: int) -> None:
        documents = [Document(f"{number} {n}", f"d{number}-{n}") for n in range(6)]
        with bounded.new_client() as client:
            results = client.ingest_many("crowded", documents[:3])
            stored.extend(isinstance(result, IngestResult) for result in results)
            for document in documents[3:]:
                with suppress(StorageQuotaExceeded):
                    client.ingest("crowded", document)
                    stored.append(True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bounded.client.index_status("crowded").tenant.documents == sum(stored) == 9


def test_summaries_count_and_are_written_even_above_the_quota(bounded):
    client = bounded.client
    settings = SettingsRequest(summaries=SummaryUnit.CHUNK)
    client.create_collection("summarised", "s", settings)
    client.ingest("summarised", Document(TEXT, "a"), collection="s")
    before = client.index_status("summarised", collection="s")
    status = wait_until_summarised(client, "summarised", "s")
    assert status.summary_count
    assert (status.tenant.collections, status.tenant.documents) == (1, 1)
    assert status.tenant.stored_bytes > before.text_bytes + before.vector_bytes


def test_hrag_status_shows_usage_and_quota(bounded):
    bounded.client.ingest("usage", Document(TEXT, "a"))
    arguments = ["status", "--tenant", "usage", "--indexer", bounded.indexer.address]
    result = CliRunner().invoke(app, [*arguments, "--retriever", bounded.retriever.address])
    assert result.exit_code == 0, result.output
    flat = " ".join(result.output.split())
    assert "1 collection, 1 of 50 documents" in flat
    assert "of 5.0 MB stored, 50 calls a second, 50 at once" in flat


def test_the_byte_quota_is_exact(bounded, exceptions, tenant):
    """The test also shows that services apply a changed quota file, and ignore an invalid file."""
    client, document = bounded.client, Document(TEXT, "cats", metadata={"a": 1})
    client.ingest(f"{tenant}-trial", document)
    size = client.index_status(f"{tenant}-trial").tenant.stored_bytes
    assert size > len(TEXT)
    bounds = f"{EXCEPTIONS}[{tenant}]\nmax_bytes = {size}"
    _rewrite(bounded, exceptions, bounds)
    assert client.ingest(tenant, document).outcome is IngestOutcome.CREATED
    assert client.ingest(tenant, document).outcome is IngestOutcome.UNCHANGED
    usage = client.index_status(tenant).tenant
    assert (usage.stored_bytes, usage.documents, usage.collections) == (size, 1, 1)
    assert usage.quota == Quota(max_bytes=size, max_documents=50)
    longer = Document(4 * TEXT, "cats", metadata={"a": 1})
    with pytest.raises(StorageQuotaExceeded, match=r"at least [0-9,]+ more"):
        client.ingest(tenant, longer)
    assert client.get_text(tenant, "cats") == TEXT
    _rewrite(bounded, exceptions, f"{bounds}\nmax_documents = many", "reload_failed")
    with pytest.raises(StorageQuotaExceeded):
        client.ingest(tenant, Document("x", "y"))
    assert "reload_failed" in bounded.indexer.log
    shorter = Document(TEXT[: len(TEXT) // 2], "cats")
    assert client.ingest(tenant, shorter).outcome is IngestOutcome.UPDATED
    client.delete_document(tenant, "cats")
    assert client.ingest(tenant, document).outcome is IngestOutcome.CREATED
    _rewrite(bounded, exceptions, f"{EXCEPTIONS}[{tenant}]\nmax_bytes = 'unlimited'")
    assert client.ingest(tenant, longer).outcome is IngestOutcome.UPDATED


def test_a_missing_quota_file_ends_a_service_at_the_start(data_dir):
    settings = {"HRAG_DATA_DIR": str(data_dir), "HRAG_TENANT_QUOTAS_FILE": "no/such.toml"}
    ended = subprocess.run(
        [sys.executable, "-m", RETRIEVER.module],
        env={**environ, **FAST, **settings},
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert b"HRAG_TENANT_QUOTAS_FILE is no/such.toml" in ended.stderr
