"""Months of updates, made within minutes, let disk use, segments, memory and latency not grow.

A tenth of 20,000 documents is replaced in each of 100 rounds, while one client searches at a
steady rate. Most rounds run at full speed, to measure disk use, segments and memory. The last
rounds run at a steady pace, to measure the latency of searches during updates.
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
# This is the time from one document to the next: 200 documents a second.
PACE_S = 0.005
REPLACED = DOCUMENTS // 10
# After these rounds, memory has the size that it must keep.
WARM_ROUNDS = 10
# Small segments cause many merges.
SEGMENT_MIN_LEAVES = 1024
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
    """Yields one of the numbers every `pace_s` seconds, without a pause if `pace_s` is 0."""
    began = time.monotonic()
    for position, number in enumerate(numbers):
        time.sleep(max(0.0, began + position * pace_s - time.monotonic()))
        yield number


class Churn:
    """Loads and replaces documents.

    `versions` has the stored version of each document, `segments` how many segments the collection
    had after each round.
    """

    def __init__(self, services: Running) -> None:
        self._services = services
        self._random = random.Random(SEED)
        self.versions = [0] * DOCUMENTS
        self.segments: list[int] = []

    def load(self) -> None:
        self._ingest(range(DOCUMENTS), IngestOutcome.CREATED)

    def rounds(self, count: int, pace_s: float = 0) -> tuple[float, float]:
        """Replaces a tenth of the documents `count` times.

        Returns when the first round began and the last round ended, as `time.monotonic`.
        """
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


def test_months_of_updates_let_disk_segments_memory_and_latency_not_grow(
    tmp_path: Path, data_dir: Path, report: Report
) -> None:
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
        _assert_only_the_latest_versions_are_found(services.client, churn)
    assert report.missed == []


def _settled_memory(services: Running) -> dict[Process, Memory]:
    wait_until_settled(services, TENANT, SEGMENT_MIN_LEAVES, SETTLE_S)
    return {process: memory_of(process) for process in (services.indexer, services.retriever)}


def _report_disk(report: Report, first_bytes: int, last_bytes: int) -> None:
    title = f"LMDB file after {ROUNDS} rounds, {last_bytes / MB:.0f} MB, to the first load"
    report.at_most(2, last_bytes / first_bytes, title, "x")


def _report_segments(report: Report, client: Client, churn: Churn) -> None:
    status = client.index_status(TENANT)
    target = max_segments(status.leaf_count, SEGMENT_MIN_LEAVES)
    title = f"segments of {status.leaf_count:,} leaves sealed at {SEGMENT_MIN_LEAVES:,}"
    report.at_most(target, len(status.embedded.segments), f"{title}, at rest", "segments")
    report.record(f"{title}, most at a round's end", f"{max(churn.segments)} segments")
    held = sum(segment.leaf_count for segment in status.embedded.segments)
    report.record(
        "rows of segments for each leaf that is not deleted", f"{held / status.leaf_count:.2f}"
    )


def _report_memory(report: Report, process: Process, warm: Memory, final: Memory) -> None:
    title = (
        f"{process.service.name} after {ROUNDS} rounds ({final}), to {WARM_ROUNDS} rounds ({warm})"
    )
    report.at_most(1.2, final.resident_bytes / warm.resident_bytes, title, "x")


def _report_latency(report: Report, quiet: Window, fast: Window, paced: Window) -> None:
    report.record("quiet search", str(quiet))
    report.record("search during churn at full speed, all cores busy", str(fast))
    report.record(f"search during churn of {1 / PACE_S:.0f} documents/s", str(paced))
    ratio = paced.percentile_ms(99) / quiet.percentile_ms(99)
    report.at_most(2, ratio, "search p99 during steady churn, to quiet", "x")


def _assert_only_the_latest_versions_are_found(client: Client, churn: Churn) -> None:
    """Fails unless searches return the latest version of documents and no older version."""
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
        result = client.search(
            TENANT, vector, mode=SearchMode.STANDARD, limit=1, neighbour_bonus=0.0
        )
        assert result.passages[0].score < 0.99
