"""Metrics: what is recorded, what is read, how both are shown."""

import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from hrag import metrics
from hrag.answers.values import FinishReason
from hrag.chat import ChatEnd, Completion
from hrag.chat.instrumented import MeteredChat
from hrag.deadline import NEVER
from hrag.embedding.instrumented import MeteredEmbedder
from hrag.engine import DocumentSummaries, Summary
from hrag.errors import ChatUnavailable, EmbedderRejected, ServiceUnavailable, StoreUnavailable
from hrag.metrics import INSTRUMENTS, Reading, Readings
from hrag.rpc.metrics_server import exposed
from hrag.rpc.worker_metrics import Gathered
from hrag.types import SummaryUnit
from tests.fakes import collection_settings, prepared, sentences, unit_vectors
from tests.metrics_page import Scrape


def grown(series: str, act: Callable[[], object], **labels: str) -> float:
    """By how much a value grows while `act` runs."""
    before = INSTRUMENTS.get_sample_value(series, labels) or 0.0
    act()
    return (INSTRUMENTS.get_sample_value(series, labels) or 0.0) - before


class FakeEmbedder:
    name, dimension, max_tokens = "fake", 4, 100

    def embed(self, texts, deadline=NEVER):
        if "bad" in texts:
            raise EmbedderRejected("no")
        return np.ones((len(texts), 4), np.float32) / 2


class FakeChat:
    """Says `a`, `b` and how it ended; or fails after `a`."""

    name = "fake"

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.closed = False

    def stream(self, prompt, max_tokens, deadline):
        try:
            yield "a"
            if self.fails:
                raise ChatUnavailable("down")
            yield "b"
            yield ChatEnd(FinishReason.STOP, 7, 2)
        finally:
            self.closed = True

    def complete(self, prompt, max_tokens, deadline):
        *pieces, end = self.stream(prompt, max_tokens, deadline)
        return Completion("".join(pieces), end)


def test_an_embedder_is_counted_by_requests_texts_and_outcomes():
    metered = MeteredEmbedder(FakeEmbedder())
    assert (metered.name, metered.dimension, metered.max_tokens) == ("fake", 4, 100)
    calls = "hrag_embedder_calls_total"
    assert grown(calls, lambda: metered.embed(["a", "b"]), outcome="ok") == 1
    assert grown("hrag_embedder_texts_total", lambda: metered.embed(["a", "b"])) == 2
    assert grown("hrag_embedder_seconds_count", lambda: metered.embed(["a"])) == 1

    def refused():
        with pytest.raises(EmbedderRejected):
            metered.embed(["bad"])

    assert grown(calls, refused, outcome="EmbedderRejected") == 1


@pytest.mark.parametrize("whole", [True, False])
def test_a_chat_model_is_counted_by_requests_tokens_and_outcomes(whole):
    def ask(*, fails: bool = False):
        chat = MeteredChat(FakeChat(fails=fails))
        if whole:
            return chat.complete("?", 9, NEVER).text
        return "".join(map(str, list(chat.stream("?", 9, NEVER))[:-1]))

    def fail():
        with pytest.raises(ChatUnavailable):
            ask(fails=True)

    assert ask() == "ab"
    assert grown("hrag_chat_calls_total", ask, outcome="ok") == 1
    assert grown("hrag_chat_tokens_total", ask, kind="prompt") == 7
    assert grown("hrag_chat_tokens_total", ask, kind="completion") == 2
    assert grown("hrag_chat_calls_total", fail, outcome="ChatUnavailable") == 1
    assert grown("hrag_chat_seconds_count", fail) == 1


def test_a_text_that_nobody_wants_any_more_is_closed_and_counted_as_abandoned():
    inner = FakeChat()

    def leave():
        pieces = MeteredChat(inner).stream("?", 9, NEVER)
        assert next(pieces) == "a"
        pieces.close()

    assert grown("hrag_chat_calls_total", leave, outcome="abandoned") == 1
    assert inner.closed


def test_a_build_that_is_given_up_has_no_duration():
    def build(error: Exception | None = None):
        with suppress(KeyError), metrics.sealing("tail"):
            if error:
                raise error

    assert grown("hrag_seal_seconds_count", build, of="tail") == 1
    assert grown("hrag_seal_seconds_count", lambda: build(KeyError()), of="tail") == 0


def test_recording_a_search_costs_little():
    """A search takes 300 us; what is counted of it must not be felt."""
    stages = [(stage, 2e-5) for stage in ("embed", "search", "climb", "fetch")]
    rounds = 2000
    best_s = min(_recording_s(stages, rounds) for _ in range(5))
    assert best_s / rounds < 50e-6, "measured 6 us; this is for machines that are busy"


def _recording_s(stages: list[tuple[str, float]], rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        metrics.call_began()
        metrics.searched(stages)
        metrics.call_ended("Search", "OK", 3e-4)
    return time.perf_counter() - began


# Readings


def _shown(readings: Readings) -> str:
    registry = CollectorRegistry()
    registry.register(readings)
    return generate_latest(registry).decode()


def test_readings_are_taken_when_somebody_looks():
    values = iter((1, 2))
    readings = Readings(lambda: [Reading("hrag_store_segments", next(values))])
    assert "hrag_store_segments 1.0" in _shown(readings)
    assert "hrag_store_segments 2.0" in _shown(readings)


def test_readings_with_labels_are_one_family_and_totals_are_counters():
    name = "hrag_cache_lookups_total"
    readings = Readings(lambda: [Reading(name, 3, {"cache": c}) for c in ("query", "sentence")])
    text = _shown(readings)
    assert text.count("# TYPE") == 1
    assert f"# TYPE {name} counter" in text
    assert f'{name}{{cache="sentence"}} 3.0' in text


def test_what_cannot_be_read_is_left_out_and_logged():
    def read():
        raise StoreUnavailable("the disk is gone")

    with capture_logs() as logs:
        assert _shown(Readings(read)) == ""
    assert [line["problem"] for line in logs] == ["the disk is gone"]


def test_a_store_is_measured_over_all_its_collections(engine):
    plain, summarised = collection_settings(), collection_settings(summaries=SummaryUnit.CHUNK)
    engine.writer.create_collection("t", "c", plain)
    engine.writer.create_collection("u", "c", summarised)
    assert engine.writer.totals().embedded.largest_tail_leaves == 0
    counts = []
    for tenant, number in (("t", 40), ("u", 10)):
        document = prepared("d", sentences(number), plain)
        engine.writer.put(engine.open(tenant), document)
        counts.append(len(document.vectors))
    totals = engine.writer.totals()
    assert (totals.collections, totals.documents, totals.leaves) == (2, 2, sum(counts))
    assert (totals.embedded.tail_leaves, totals.embedded.largest_tail_leaves) == (
        sum(counts),
        max(counts),
    )
    assert (totals.unsummarised_documents, totals.summaries) == (1, 0)
    assert totals.text_bytes == len(sentences(40)) + len(sentences(10))
    waiting = engine.writer.next_unsummarised("fake")
    summary = Summary("All of it.", range(counts[1]))
    engine.writer.put_summaries(waiting, DocumentSummaries((summary,), unit_vectors(1, 3)))
    record = engine.seal("t")
    totals = engine.writer.totals()
    assert (totals.unsummarised_documents, totals.summaries, totals.documents) == (0, 1, 2)
    assert (totals.embedded.segments, totals.embedded.segment_bytes) == (1, record.size_bytes)
    assert totals.embedded.tail_leaves == counts[1] + 1
    assert totals.embedded.sequence == engine.reader.status().embedded.sequence
    assert min(totals.embedded.file_bytes, totals.embedded.disk_free_bytes, totals.vector_bytes) > 0
    engine.writer.delete_collection("u", "c")
    totals = engine.writer.totals()
    assert (totals.collections, totals.documents, totals.summaries) == (1, 1, 0)


# Showing


def test_metrics_are_shown_over_http_and_no_longer_than_asked():
    reading = Readings(lambda: [Reading("hrag_store_leaves", 5)])
    with exposed("127.0.0.1:0", INSTRUMENTS, reading) as port:
        scrape = Scrape(f"127.0.0.1:{port}")
        assert scrape.value("hrag_store_leaves") == 5
        assert "process_resident_memory_bytes" in scrape
        with pytest.raises(ServiceUnavailable, match=f"127.0.0.1:{port} for metrics"):
            exposed(f"127.0.0.1:{port}").__enter__()
    with pytest.raises(OSError, match="refused"):
        Scrape(f"127.0.0.1:{port}")


def test_without_an_address_nothing_is_shown():
    with exposed("", INSTRUMENTS) as port:
        assert port == 0


def test_workers_are_shown_side_by_side_and_one_that_is_gone_is_not():
    def worker(leaves: int):
        return Readings(lambda: [Reading("hrag_reader_loaded_bytes", leaves)])

    with (
        exposed("127.0.0.1:0", worker(5)) as first,
        exposed("127.0.0.1:0", worker(7)) as second,
    ):
        with exposed("127.0.0.1:0") as gone:
            pass
        ports = [first, second, 0, gone]
        with exposed("127.0.0.1:0", Gathered(ports)) as port:
            scrape = Scrape(f"127.0.0.1:{port}")
    assert scrape.text.count("# TYPE hrag_reader_loaded_bytes") == 1
    loaded = "hrag_reader_loaded_bytes"
    assert [scrape.value(loaded, worker=str(n)) for n in (0, 1)] == [5, 7]
    assert {sample.labels["worker"] for sample in scrape[loaded].samples} == {"0", "1"}
    assert (scrape.value("hrag_workers"), scrape.value("hrag_workers_serving")) == (4, 3)
