"""200,000 documents through one stream: bounded memory, at a fair share of hnswlib's rate."""

import time
from pathlib import Path

import pytest

from hrag.types import IngestOutcome, IngestResult
from tests.endurance import texts
from tests.endurance.bare_index import bare_seconds
from tests.endurance.processes import MB, MemorySampler, memory_of, wait_until_idle
from tests.endurance.report import Report
from tests.endurance.settled import most_segments, wait_until_sealed
from tests.processes import Running, running

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(900)]

TENANT = "bulk"
DOCUMENTS = 200_000
LEAVES = (1, 3, 3)
DIMENSION = 64
SEAL_LEAVES = 8192  # The default.
SEAL_S = 300.0
SETTINGS = {
    **texts.SMALL_LEVELS,
    "HRAG_EMBEDDER": f"hash:{DIMENSION}",
    "HRAG_SEAL_LEAVES": str(SEAL_LEAVES),
    "HRAG_LOG_LEVEL": "info",
}


def test_bulk_load(data_dir: Path, report: Report) -> None:
    with running(data_dir, SETTINGS) as services, MemorySampler(services.indexer) as indexer:
        began = time.monotonic()
        _stream(services)
        durable_s = time.monotonic() - began
        status = wait_until_sealed(services.client, TENANT, SEAL_LEAVES, SEAL_S)
        sealed_s = time.monotonic() - began
        wait_until_idle(services.indexer, SEAL_S)
        merged = services.client.index_status(TENANT)
        now = memory_of(services.indexer)
        retriever = memory_of(services.retriever)
    assert status.document_count == DOCUMENTS
    report.at_most(500, indexer.grown_bytes / MB, f"indexer grew at most; now {now}", "MB")
    report.tell("retriever meanwhile", str(retriever))
    bar = most_segments(status.leaf_count, SEAL_LEAVES)
    report.at_most(bar, len(merged.embedded.segments), "segments at rest", "segments")
    _judge_rates(report, status.leaf_count, durable_s, sealed_s)
    assert report.missed == []


def _stream(services: Running) -> None:
    """One call; every document has its result, in order."""
    documents = texts.documents(range(DOCUMENTS), LEAVES)
    count = 0
    for result in services.client.ingest_many(TENANT, documents):
        assert isinstance(result, IngestResult), result
        assert result.outcome is IngestOutcome.CREATED
        assert result.document_id == texts.document_id(count)
        count += 1
    assert count == DOCUMENTS


def _judge_rates(report: Report, leaves: int, durable_s: float, sealed_s: float) -> None:
    bare_s = bare_seconds(leaves, DIMENSION)
    report.tell(f"bare add_items of {leaves:,} x {DIMENSION}", f"{leaves / bare_s:,.0f} leaves/s")
    report.tell("durable", f"{leaves / durable_s:,.0f} leaves/s")
    report.tell("sealed", f"{leaves / sealed_s:,.0f} leaves/s, {bare_s / sealed_s:.2f} x add_items")
    report.at_least(0.5, bare_s / durable_s, "durable commit beside add_items", "x")
