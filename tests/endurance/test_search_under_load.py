"""During bulk loads and sealing, no search fails and few searches wait.

One client searches without pauses: first on idle services, then during a load. In the load, one
stream ingests into the searched collection, another stream into another collection, and both
collections are sealed.
"""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from hrag.types import Document, EmbeddedIndexStatus, IndexStatus, IngestOutcome, IngestResult
from tests.endurance import texts
from tests.endurance.report import Report
from tests.endurance.searches import Window, searching
from tests.endurance.settled import wait_until_settled
from tests.support.servers.processes import Running, fresh, running
from tests.support.until import until

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(1200)]

SEARCHED = "searched"
OTHER = "other"
DOCUMENTS = 10_000
# All documents together have about 20,000 leaves.
LEAVES = (1, 2, 3)
# This is the default of the setting.
SEGMENT_MIN_LEAVES = 8192
SETTLE_S = 240.0
IDLE_S = 10.0
# The load lasts at least this many seconds. It ends when both collections have a new segment.
BUSY_S = 30.0
SETTINGS = {
    **texts.SMALL_LEVELS,
    "HRAG_EMBEDDER": "hash:64",
    "HRAG_SEGMENT_MIN_LEAVES": str(SEGMENT_MIN_LEAVES),
    "HRAG_LOG_LEVEL": "info",
}


def test_searches_stay_quick_during_bulk_load_and_sealing(
    tmp_path: Path, data_dir: Path, report: Report
) -> None:
    with running(data_dir, SETTINGS, fresh) as services:
        _load(services, SEARCHED, texts.documents(range(DOCUMENTS), LEAVES))
        before = wait_until_settled(services, SEARCHED, SEGMENT_MIN_LEAVES, SETTLE_S)
        with searching(tmp_path, services.retriever.address, SEARCHED, 0) as searcher:
            idle_before = searcher.during(IDLE_S)
            began, loaded = time.monotonic(), _load_both(services, before)
            ended = time.monotonic()
            for tenant in (SEARCHED, OTHER):
                wait_until_settled(services, tenant, SEGMENT_MIN_LEAVES, SETTLE_S)
            idle_after = searcher.during(IDLE_S)
        busy = searcher.between(began, ended)
    report.record("idle search, before", str(idle_before))
    report.record("idle search, after, on the loaded documents, too", str(idle_after))
    title = f"search while {sum(loaded):,} documents came in {ended - began:.0f} s and were sealed"
    report.record(title, str(busy))
    idle = Window(np.concatenate([idle_before.took_ms, idle_after.took_ms]))
    ratio = busy.percentile_ms(99) / idle.percentile_ms(99)
    report.at_most(3, ratio, "search p99 during bulk load and sealing, to idle", "x")
    assert report.missed == []


def _load_both(services: Running, before: IndexStatus) -> list[int]:
    """Streams documents into both collections until both have a new segment.

    Returns how many documents each stream has stored. `before` is the status of SEARCHED before.
    """
    sealed = before.embedded.sealed_sequence
    stopping = threading.Event()
    with ThreadPoolExecutor(2, initializer=_lower_priority) as pool:
        streams = [
            pool.submit(_load, services, tenant, _documents_until(stopping, DOCUMENTS))
            for tenant in (SEARCHED, OTHER)
        ]
        try:
            time.sleep(BUSY_S)
            until(lambda: _index(services, SEARCHED).sealed_sequence > sealed, SETTLE_S)
            until(lambda: bool(_index(services, OTHER).segments), SETTLE_S)
        finally:
            stopping.set()
        return [stream.result() for stream in streams]


def _index(services: Running, tenant: str) -> EmbeddedIndexStatus:
    embedded = services.client.index_status(tenant).embedded
    assert embedded is not None
    return embedded


def _lower_priority() -> None:
    """Gives this thread the lowest priority, as if the client ran on another machine."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def _documents_until(stopping: threading.Event, start: int) -> Iterator[Document]:
    """Yields documents that are numbered from `start`, until the event is set."""
    for number in count(start):
        if stopping.is_set():
            return
        yield from texts.documents([number], LEAVES)


def _load(services: Running, tenant: str, documents: Iterator[Document]) -> int:
    """Streams documents, which must be new; returns how many were stored."""
    loaded = 0
    for result in services.client.ingest_many(tenant, documents):
        assert isinstance(result, IngestResult), result
        assert result.outcome is IngestOutcome.CREATED
        loaded += 1
    return loaded
