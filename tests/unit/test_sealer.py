"""The sealer: what it does in the background, and what it goes on after."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded import sealing, segments
from hrag.engine.embedded.store import Store
from hrag.engine.embedded.writer import EmbeddedWriter
from hrag.errors import StorageFull
from indexer_svc import sealer as sealer_module
from indexer_svc.sealer import Sealer
from tests.fakes import collection_settings, prepared, sentences

WAIT_S = 10.0
THRESHOLD = 20


@contextmanager
def running(store: Store, threshold: int = THRESHOLD) -> Iterator[EmbeddedWriter]:
    """A writer whose commits a sealer hears of."""
    sealer = Sealer(store, threshold)
    sealer.start()
    try:
        yield EmbeddedWriter(store, on_commit=sealer.changed)
    finally:
        sealer.close()


@pytest.fixture
def writer(store):
    """A writer of which no sealer hears, and a collection."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    return writer


def segment_count(writer: EmbeddedWriter, name: str = "c") -> int:
    return len(writer.status(writer.open("t", name)).segments)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_tail_is_sealed_once_it_passes_the_threshold(store, writer):
    leaves = 0
    with running(store) as heard:
        while leaves < THRESHOLD:
            document = prepared(f"d{leaves}", sentences(12), seed=leaves)
            assert segment_count(writer) == 0
            heard.put(heard.open("t", "c"), document)
            leaves += len(document.vectors)
        wait_until(lambda: segment_count(writer) == 1)
    status = writer.status(writer.open("t", "c"))
    assert (status.segments[0].leaf_count, status.tail_leaf_count) == (leaves, 0)


def test_a_small_tail_stays_a_tail(store, writer):
    with running(store) as heard:
        heard.put(heard.open("t", "c"), prepared("d", sentences(12)))
    assert segment_count(writer) == 0


def test_a_start_seals_and_purges_what_an_earlier_process_left(store, writer):
    writer.create_collection("t", "gone", collection_settings())
    writer.put(writer.open("t", "gone"), prepared("d", sentences(12)))
    writer.delete_collection("t", "gone")
    writer.put(writer.open("t", "c"), prepared("d", sentences(200)))
    left = segments.path_of(store.segments, 7).with_suffix(".tmp")
    left.mkdir()
    (left / "index.hnsw").write_bytes(b"half")
    with running(store):
        assert not left.exists()
        wait_until(lambda: segment_count(writer) == 1)
    with store.read() as txn:
        assert txn.stat(store.db["dropped"])["entries"] == 0
        assert txn.stat(store.db["texts"])["entries"] == 1


def test_a_deleted_collection_is_purged(store, writer):
    with running(store) as heard:
        heard.put(heard.open("t", "c"), prepared("d", sentences(200)))
        wait_until(lambda: segment_count(writer) == 1)
        heard.delete_collection("t", "c")
        wait_until(lambda: not list(store.segments.iterdir()))
    with store.read() as txn:
        assert txn.stat(store.db["texts"])["entries"] == 0


@pytest.mark.parametrize(
    "failure", [OSError("no space"), StorageFull("no space"), RuntimeError("a fault")]
)
def test_after_a_failure_it_tries_again(store, writer, monkeypatch, failure):
    monkeypatch.setattr(sealer_module, "_RETRY_S", 0.01)
    seal, failed = sealing.seal, threading.Event()

    def fail_once(*args: object) -> object:
        if not failed.is_set():
            failed.set()
            raise failure
        return seal(*args)

    monkeypatch.setattr(sealing, "seal", fail_once)
    with capture_logs() as logs, running(store) as heard:
        heard.put(heard.open("t", "c"), prepared("d", sentences(200)))
        wait_until(lambda: segment_count(writer) == 1)
    assert [log["log_level"] for log in logs if log["event"] == "cannot_seal"] == ["error"]


def test_closing_waits_for_the_segment_in_work(store, writer, monkeypatch):
    build, building = segments.build_index, threading.Event()

    def slow(*args: object) -> object:
        building.set()
        time.sleep(0.1)
        return build(*args)

    monkeypatch.setattr(segments, "build_index", slow)
    writer.put(writer.open("t", "c"), prepared("d", sentences(200)))
    writer.create_collection("t", "c2", collection_settings())
    writer.put(writer.open("t", "c2"), prepared("d", sentences(200)))
    with running(store):
        assert building.wait(WAIT_S)
    assert segment_count(writer) + segment_count(writer, "c2") == 1
    assert "sealer" not in {thread.name for thread in threading.enumerate()}
