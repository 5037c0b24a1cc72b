"""Months of updates in minutes: disk, segments, memory and latency do not grow.

20,000 documents, a tenth of them replaced in each of 100 rounds, while one client
searches at a steady rate. Most rounds go as fast as they can, for what must not grow; the
last ones at a steady pace, for what a search beside them takes.
"""

import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hrag.client import Client
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import IngestOutcome, IngestResult, SearchMode
from tests.endurance import texts
from tests.endurance.processes import MB, Memory, memory_of
from tests.endurance.report import Report
from tests.endurance.searches import Window, searching
from tests.endurance.settled import lmdb_bytes, max_segments, wait_until_settled
from tests.support.servers.processes import Process, Running, fresh, running

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(900)]

TENANT = "churn"
DOCUMENTS = 20_000
LEAVES = (1, 2)
ROUNDS = 100
PACED_ROUNDS = 6
PACE_S = 0.005  # From one document to the next: 200 a second.
REPLACED = DOCUMENTS // 10
WARM_ROUNDS = 10  # After so many, memory has the size that it must keep.
SEGMENT_MIN_LEAVES = 1024  # Small, so that there is much to merge.
DIMENSION = 64
SEED = 51
SETTLE_S = 120.0
QUIET_S = 15.0
SEARCH_EVERY_S = 0.01
SETTINGS = {
    **texts.SMALL_LEVELS,
    "HRAG_EMBEDDER": f"hash:{DIMENSION}",
    "HRAG_SEGMENT_MIN_LEAVES": str(SEGMENT_MIN_LEAVES),
    "HRAG_LOG_LEVEL": "info",
}


def _paced(numbers: Iterable[int], pace_s: float) -> Iterator[int]:
    began = time.monotonic()
    for place, number in enumerate(numbers):
        time.sleep(max(0.0, began + place * pace_s - time.monotonic()))
        yield number


class Churn:
    """The stored version of each document, and the segments after each round."""

    def __init__(self, services: Running) -> None:
        self._services = services
        self._random = random.Random(SEED)
        self.versions = [0] * DOCUMENTS
        self.segments: list[int] = []

    def load(self) -> None:
        self._ingest(range(DOCUMENTS), IngestOutcome.CREATED)

    def rounds(self, count: int, pace_s: float = 0) -> tuple[float, float]:
        """Replaces a tenth, `count` times over; returns when it began and ended."""
        began = time.monotonic()
        for _ in range(count):
            chosen = self._random.sample(range(DOCUMENTS), REPLACED)
            for number in chosen:
                self.versions[number] += 1
            self._ingest(chosen, IngestOutcome.UPDATED, pace_s)
            self.segments.append(len(self._services.client.index_status(TENANT).embedded.segments))
        return began, time.monotonic()

    def body(self, number: int) -> str:
        words = texts.WORDS_OF_LEAVES[LEAVES[number % len(LEAVES)]]
        return texts.text(number, words, self.versions[number])

    def _ingest(
        self, numbers: range | list[int], expected: IngestOutcome, pace_s: float = 0
    ) -> None:
        documents = (
            next(texts.documents([number], LEAVES, self.versions[number]))
            for number in _paced(numbers, pace_s)
        )
        results = list(self._services.client.ingest_many(TENANT, documents))
        assert len(results) == len(numbers)
        for result in results:
            assert isinstance(result, IngestResult), result
            assert result.outcome is expected


def test_churn(tmp_path: Path, data_dir: Path, report: Report) -> None:
    with running(data_dir, SETTINGS, fresh) as services:
        churn = Churn(services)
        churn.load()
        wait_until_settled(services, TENANT, SEGMENT_MIN_LEAVES, SETTLE_S)
        first_bytes = lmdb_bytes(data_dir)
        with searching(tmp_path, services.retriever.address, TENANT, SEARCH_EVERY_S) as searcher:
            quiet_before = searcher.during(QUIET_S)
            churn.rounds(WARM_ROUNDS)
            warm = _settled_memory(services)
            fast = churn.rounds(ROUNDS - WARM_ROUNDS - PACED_ROUNDS)
            paced = churn.rounds(PACED_ROUNDS, PACE_S)
            final = _settled_memory(services)
            quiet_after = searcher.during(QUIET_S)
        _report_disk(report, first_bytes, lmdb_bytes(data_dir))
        _report_segments(report, services.client, churn)
        for process in (services.indexer, services.retriever):
            _report_memory(report, process, warm[process], final[process])
        quiet = Window(np.concatenate([quiet_before.took_ms, quiet_after.took_ms]))
        _report_latency(report, quiet, searcher.between(*fast), searcher.between(*paced))
        documents = (ROUNDS - WARM_ROUNDS - PACED_ROUNDS) * REPLACED
        report.record(
            "replaced, at full speed", f"{documents / (fast[1] - fast[0]):,.0f} documents/s"
        )
        _the_latest_versions_are_found(services.client, churn)
    assert report.missed == []


def _settled_memory(services: Running) -> dict[Process, Memory]:
    wait_until_settled(services, TENANT, SEGMENT_MIN_LEAVES, SETTLE_S)
    return {process: memory_of(process) for process in (services.indexer, services.retriever)}


def _report_disk(report: Report, first_bytes: int, last_bytes: int) -> None:
    what = f"LMDB file after {ROUNDS} rounds, {last_bytes / MB:.0f} MB, beside the first load"
    report.at_most(2, last_bytes / first_bytes, what, "x")


def _report_segments(report: Report, client: Client, churn: Churn) -> None:
    status = client.index_status(TENANT)
    target = max_segments(status.leaf_count, SEGMENT_MIN_LEAVES)
    what = f"segments of {status.leaf_count:,} leaves sealed at {SEGMENT_MIN_LEAVES:,}"
    report.at_most(target, len(status.embedded.segments), f"{what}, at rest", "segments")
    report.record(f"{what}, most at a round's end", f"{max(churn.segments)} segments")
    held = sum(segment.leaf_count for segment in status.embedded.segments)
    report.record(
        "rows of segments for each leaf that is not deleted", f"{held / status.leaf_count:.2f}"
    )


def _report_memory(report: Report, process: Process, warm: Memory, final: Memory) -> None:
    what = f"{process.service.name} after {ROUNDS} rounds ({final}) beside {WARM_ROUNDS} ({warm})"
    report.at_most(1.2, final.resident_bytes / warm.resident_bytes, what, "x")


def _report_latency(report: Report, quiet: Window, fast: Window, paced: Window) -> None:
    report.record("quiet search", str(quiet))
    report.record("search beside churn at full speed, all cores busy", str(fast))
    report.record(f"search beside churn of {1 / PACE_S:.0f} documents/s", str(paced))
    ratio = paced.percentile_ms(99) / quiet.percentile_ms(99)
    report.at_most(2, ratio, "search p99 beside steady churn to quiet", "x")


def _the_latest_versions_are_found(client: Client, churn: Churn) -> None:
    """And no others: the version before is in no result."""
    embedder = HashEmbedder(DIMENSION)
    for number in random.Random(SEED).sample(range(DOCUMENTS), 200):
        body = churn.body(number)
        assert client.get_text(TENANT, texts.document_id(number)) == body
        vector = texts.leaf_vectors(body, embedder)[0].tolist()
        best = client.search(
            TENANT, vector, mode=SearchMode.STANDARD, limit=1, neighbour_bonus=0.0
        ).passages[0]
        assert best.chunk.document_id == texts.document_id(number)
        assert best.score == pytest.approx(1, abs=1e-5)
        old = texts.text(number, len(body.split()) - 2, churn.versions[number] - 1)
        vector = texts.leaf_vectors(old, embedder)[0].tolist()
        found = client.search(
            TENANT, vector, mode=SearchMode.STANDARD, limit=1, neighbour_bonus=0.0
        )
        assert found.passages[0].score < 0.99
