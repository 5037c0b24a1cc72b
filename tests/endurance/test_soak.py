"""Hours of ordinary use of several tenants neither lose a document nor let any resource grow.

Two pairs of services with different embedders run at once. In each, several tenants put documents
in six formats, replace, change, delete and search them, at a steady rate. The run takes a minute;
the environment variable SOAK_S sets another time, in seconds.
"""

import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hrag.client import Client
from hrag.errors import DocumentNotFound
from hrag.types import Passage, Retrieval, SearchMode
from tests.endurance.formatted import FORMATS, document_of, has_all_words, word_of
from tests.endurance.processes import MB, memory_of
from tests.endurance.report import Report
from tests.support.documents.vocabulary import question
from tests.support.servers.processes import Process, Running, fresh, running

_SOAK_S = float(os.environ.get("SOAK_S", "60"))

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(_SOAK_S + 600)]

EMBEDDERS = ("builtin", "hash:64")
TENANTS = ("north", "south", "west")
DOCUMENTS = 48
STEP_S = 0.5
"""The time from one step of a tenant to its next."""
SAMPLE_S = 5.0
SEED = 77
SETTINGS = {
    "HRAG_SEGMENT_MIN_LEAVES": "256",
    "HIERARCHICAL_CHUNK_LEVELS": "64,128,256",
    "HRAG_LOG_LEVEL": "info",
}
_SEARCHED = 0.5
_DELETED, _REVISED = 0.2, 0.2
# What a resource may have at the end of a run, relative to the end of its first third.
_MAX_MEMORY_RATIO = 1.25
_MAX_DISK_RATIO = 2.0
_MAX_MORE_FILES = 32
_MAX_MORE_THREADS = 16


@dataclass
class Tenant:
    """A tenant of one pair of services: the stored version of each document, 0 if there is none.

    `written` is the number of the last version of each document.
    """

    client: Client
    tenant_id: str
    source: random.Random
    stored: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)

    def load(self) -> None:
        for number in range(DOCUMENTS):
            self._put(f"d{number}.{list(FORMATS)[number % len(FORMATS)]}")

    def step(self) -> None:
        """Makes one write or one search of the tenant."""
        draw = self.source.random()
        if draw < _SEARCHED:
            self._search_document() if self.source.random() < _SEARCHED else self._search()
            return
        document_id = self.source.choice(list(self.stored))
        draw = self.source.random()
        if self.stored[document_id] and draw < _DELETED:
            self.client.delete_document(self.tenant_id, document_id)
            self.stored[document_id] = 0
            self.counts["deleted"] += 1
        elif self.stored[document_id] and draw < _DELETED + _REVISED:
            self.client.update_metadata(self.tenant_id, document_id, {"seen": True})
            self.counts["changed metadata"] += 1
        else:
            self._put(document_id)

    def _put(self, document_id: str) -> None:
        version = self.written.get(document_id, 0) + 1
        self.client.ingest(self.tenant_id, document_of(self.tenant_id, document_id, version))
        self.stored[document_id] = self.written[document_id] = version
        self.counts[f"put {document_id.rpartition('.')[2]}"] += 1

    def _search_document(self) -> None:
        """Searches for the word of a version: all of it is found if it is stored, or nothing."""
        document_id = self.source.choice(list(self.stored))
        version = self.stored[document_id]
        word = word_of(self.tenant_id, document_id, version or self.written[document_id])
        passages = self._timed(word, SearchMode.STANDARD, Retrieval.LEXICAL)
        assert bool(passages) == bool(version), (document_id, version)
        assert {passage.chunk.document_id for passage in passages} <= {document_id}

    def _search(self) -> None:
        mode = self.source.choice(list(set(SearchMode) - {SearchMode.SUMMARY_FIRST}))
        for passage in self._timed(question(self.source), mode, Retrieval.HYBRID):
            document_id = passage.chunk.document_id
            assert passage.chunk.metadata["version"] == self.stored[document_id]

    def _timed(self, text: str, mode: SearchMode, retrieval: Retrieval) -> tuple[Passage, ...]:
        began = time.monotonic()
        result = self.client.search(self.tenant_id, text, mode=mode, retrieval=retrieval)
        self.latencies_s.append(time.monotonic() - began)
        self.counts["searches"] += 1
        return result.passages

    def verify(self) -> None:
        """Fails unless exactly the stored documents are there, each with all its words."""
        listing = self.client.list_documents(self.tenant_id, page_size=1000)
        listed = {info.document_id: info.metadata["version"] for info in listing.items}
        assert listed == {name: version for name, version in self.stored.items() if version}
        for document_id, version in self.stored.items():
            if version:
                text = self.client.get_text(self.tenant_id, document_id)
                assert has_all_words(text, self.tenant_id, document_id, version), document_id
            else:
                with pytest.raises(DocumentNotFound):
                    self.client.get_text(self.tenant_id, document_id)


@dataclass(frozen=True)
class Sample:
    """What a service uses at a moment."""

    memory_bytes: int
    files: int
    threads: int


def _sample(process: Process) -> Sample:
    folder = Path(f"/proc/{process.pid}")
    return Sample(
        memory_of(process).anon_bytes,
        len(list((folder / "fd").iterdir())),
        len(list((folder / "task").iterdir())),
    )


def _disk_bytes(data_dir: Path) -> int:
    """Returns the disk space of a store, without files that are removed in this moment."""
    total = 0
    for folder, _, names in os.walk(data_dir):
        for name in names:
            path = Path(folder, name)
            total += path.stat().st_blocks * 512 if path.exists() else 0
    return total


class Watch:
    """Samples the resources of all services until the `with` block ends."""

    def __init__(self, services: list[Running]) -> None:
        self._services = services
        self.samples: list[dict[str, Sample]] = []
        self.disk_bytes: list[int] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        ending = threading.Event()
        thread = threading.Thread(target=self._watch, args=(ending,))
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _watch(self, ending: threading.Event) -> None:
        while not ending.wait(SAMPLE_S):
            self.samples.append(
                {
                    f"{process.service.name} with {embedder}": _sample(process)
                    for embedder, pair in zip(EMBEDDERS, self._services, strict=True)
                    for process in (pair.indexer, pair.retriever)
                }
            )
            self.disk_bytes.append(sum(_disk_bytes(pair.data_dir) for pair in self._services))

    def report(self, report: Report) -> None:
        """Compares the last sixth of the samples with those before the end of the first third."""
        part = max(len(self.samples) // 6, 1)
        warm, last = self.samples[part : 2 * part], self.samples[-part:]
        for name in self.samples[0]:
            _report_service(report, name, [s[name] for s in warm], [s[name] for s in last])
        disk = [
            statistics.median(self.disk_bytes[at])
            for at in (slice(part, 2 * part), slice(-part, None))
        ]
        title = f"disk, {disk[1] / MB:.0f} MB, to {disk[0] / MB:.0f} MB"
        report.at_most(_MAX_DISK_RATIO, disk[1] / disk[0], title, "x")


def _report_service(report: Report, name: str, warm: list[Sample], last: list[Sample]) -> None:
    def median(samples: list[Sample], field_name: str) -> float:
        return statistics.median(getattr(sample, field_name) for sample in samples)

    before, after = median(warm, "memory_bytes"), median(last, "memory_bytes")
    title = f"memory of the {name}, {after / MB:.0f} MB, to {before / MB:.0f} MB"
    report.at_most(_MAX_MEMORY_RATIO, after / before, title, "x")
    for what, most in (("files", _MAX_MORE_FILES), ("threads", _MAX_MORE_THREADS)):
        before, after = median(warm, what), median(last, what)
        report.at_most(most, after - before, f"more {what} of the {name}, {after:.0f}", what)


def _soak(tenant: Tenant, until_s: float) -> None:
    while (now := time.monotonic()) < until_s:
        tenant.step()
        time.sleep(max(0.0, now + STEP_S - time.monotonic()))


def test_a_soak_loses_nothing_and_lets_nothing_grow(tmp_path: Path, report: Report) -> None:
    with ExitStack() as stack:
        services = [
            stack.enter_context(
                running(tmp_path / f"store{number}", {**SETTINGS, "HRAG_EMBEDDER": name}, fresh)
            )
            for number, name in enumerate(EMBEDDERS)
        ]
        tenants = [
            Tenant(pair.client, tenant_id, random.Random(f"{SEED} {number} {tenant_id}"))
            for number, pair in enumerate(services)
            for tenant_id in TENANTS
        ]
        watch = Watch(services)
        with ThreadPoolExecutor(len(tenants)) as threads:
            list(threads.map(Tenant.load, tenants))
            until_s = time.monotonic() + _SOAK_S
            with watch.watching():
                for task in [threads.submit(_soak, tenant, until_s) for tenant in tenants]:
                    task.result()
        for tenant in tenants:
            tenant.verify()
        counts = sum((tenant.counts for tenant in tenants), Counter[str]())
        for name, count in sorted(counts.items()):
            report.record(name, f"{count:,}")
        latencies = sorted(took for tenant in tenants for took in tenant.latencies_s)
        p50, p99 = (1e3 * latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
        report.record("searches", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        watch.report(report)
    assert report.missed == []
