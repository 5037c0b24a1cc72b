"""A stream of 200,000 documents needs bounded memory and is as fast as half of hnswlib's rate."""

import time
from pathlib import Path

import pytest

from hrag.types import IngestOutcome, IngestResult
from tests.endurance import texts
from tests.endurance.processes import MB, MemorySampler, memory_of, wait_until_idle
from tests.endurance.raw_index import raw_seconds
from tests.endurance.report import Report
from tests.endurance.settled import max_segments, wait_until_sealed
from tests.support.servers.processes import Running, fresh, running

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(2400)]

TENANT = "bulk"
DOCUMENTS = 200_000
LEAVES = (1, 3, 3)
DIMENSION = 64
# This is the default of the setting.
SEGMENT_MIN_LEAVES = 8192
SEAL_S = 300.0
SETTINGS = {
    **texts.SMALL_LEVELS,
    "HRAG_EMBEDDER": f"hash:{DIMENSION}",
    "HRAG_SEGMENT_MIN_LEAVES": str(SEGMENT_MIN_LEAVES),
    "HRAG_LOG_LEVEL": "info",
}


def test_a_bulk_load_is_fast_in_bounded_memory(data_dir: Path, report: Report) -> None:
    with running(data_dir, SETTINGS, fresh) as services, MemorySampler(services.indexer) as indexer:
        began = time.monotonic()
        _stream(services)
        durable_s = time.monotonic() - began
        status = wait_until_sealed(services.client, TENANT, SEGMENT_MIN_LEAVES, SEAL_S)
        sealed_s = time.monotonic() - began
        wait_until_idle(services.indexer, SEAL_S)
        merged = services.client.index_status(TENANT)
        now = memory_of(services.indexer)
        retriever = memory_of(services.retriever)
    assert status.document_count == DOCUMENTS
    report.at_most(500, indexer.grown_bytes / MB, f"indexer grew at most; now {now}", "MB")
    report.record("retriever meanwhile", str(retriever))
    target = max_segments(status.leaf_count, SEGMENT_MIN_LEAVES)
    report.at_most(target, len(merged.embedded.segments), "segments at rest", "segments")
    _report_rates(report, status.leaf_count, durable_s, sealed_s)
    assert report.missed == []


def _stream(services: Running) -> None:
    """Sends all documents in one call. Fails unless each has its result, in order."""
    documents = texts.documents(range(DOCUMENTS), LEAVES)
    count = 0
    for result in services.client.ingest_many(TENANT, documents):
        assert isinstance(result, IngestResult), result
        assert result.outcome is IngestOutcome.CREATED
        assert result.document_id == texts.document_id(count)
        count += 1
    assert count == DOCUMENTS


def _report_rates(report: Report, leaves: int, durable_s: float, sealed_s: float) -> None:
    raw_s = raw_seconds(leaves, DIMENSION)
    report.record(
        f"hnswlib's add_items alone of {leaves:,} x {DIMENSION}", f"{leaves / raw_s:,.0f} leaves/s"
    )
    report.record("durable", f"{leaves / durable_s:,.0f} leaves/s")
    report.record(
        "sealed", f"{leaves / sealed_s:,.0f} leaves/s, {raw_s / sealed_s:.2f} x add_items"
    )
    report.at_least(0.5, raw_s / durable_s, "rate of durable commits to add_items", "x")
