"""Metrics are recorded by instruments or read at each scrape, and are served over HTTP."""

import dataclasses
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from hrag.engine import DocumentSummaries, Summary
from hrag.errors import (
    ChatUnavailable,
    EmbedderRejected,
    InvalidArgument,
    ReplyTooLarge,
    ServiceUnavailable,
    StoreUnavailable,
    TooLarge,
)
from hrag.models.chat import ChatEnd, Completion
from hrag.models.chat.instrumented_chat import InstrumentedChat
from hrag.models.embedding.instrumented_embedder import InstrumentedEmbedder
from hrag.observe import metrics
from hrag.observe.metrics import INSTRUMENTS, Reading, Readings
from hrag.server.serving.metrics_server import serve_metrics
from hrag.server.serving.worker_metrics import WorkerMetrics
from hrag.types import Limits, StandaloneMethod, SummaryUnit
from hrag.values.answers import FinishReason
from hrag.values.deadline import NEVER
from hrag.values.document_limits import DOCUMENT_LIMITS, LIMIT_NAMES
from tests.support.documents.fakes import collection_settings, prepared, sentences, unit_vectors
from tests.support.servers.metrics_page import Scrape


def increase(series: str, act: Callable[[], object], **labels: str) -> float:
    """Returns by how much `act` increases the value of a metric."""
    before = INSTRUMENTS.get_sample_value(series, labels) or 0.0
    act()
    return (INSTRUMENTS.get_sample_value(series, labels) or 0.0) - before


class FakeEmbedder:
    name, dimension, max_tokens, lowest_cosine = "fake", 4, 100, -1.0

    def embed(self, texts, deadline=NEVER):
        if "bad" in texts:
            raise EmbedderRejected("no")
        return np.ones((len(texts), 4), np.float32) / 2


class FakeChat:
    """Streams `a`, `b` and a ChatEnd. If `fails` is set, raises ChatUnavailable after `a`."""

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


def test_requests_texts_and_outcomes_of_an_embedder_are_counted():
    instrumented = InstrumentedEmbedder(FakeEmbedder())
    assert (instrumented.name, instrumented.dimension, instrumented.max_tokens) == ("fake", 4, 100)
    calls = "hrag_embedder_calls_total"
    assert increase(calls, lambda: instrumented.embed(["a", "b"]), outcome="ok") == 1
    assert increase("hrag_embedder_texts_total", lambda: instrumented.embed(["a", "b"])) == 2
    assert increase("hrag_embedder_seconds_count", lambda: instrumented.embed(["a"])) == 1

    def refused():
        with pytest.raises(EmbedderRejected):
            instrumented.embed(["bad"])

    assert increase(calls, refused, outcome="EmbedderRejected") == 1


@pytest.mark.parametrize("is_streamed", [False, True])
def test_requests_tokens_and_outcomes_of_a_chat_model_are_counted(is_streamed):
    def ask(*, fails: bool = False):
        chat = InstrumentedChat(FakeChat(fails=fails))
        if is_streamed:
            return "".join(map(str, list(chat.stream("?", 9, NEVER))[:-1]))
        return chat.complete("?", 9, NEVER).text

    def fail():
        with pytest.raises(ChatUnavailable):
            ask(fails=True)

    assert ask() == "ab"
    assert increase("hrag_chat_calls_total", ask, outcome="ok") == 1
    assert increase("hrag_chat_tokens_total", ask, kind="prompt") == 7
    assert increase("hrag_chat_tokens_total", ask, kind="completion") == 2
    assert increase("hrag_chat_calls_total", fail, outcome="ChatUnavailable") == 1
    assert increase("hrag_chat_seconds_count", fail) == 1


def test_an_abandoned_stream_is_closed_and_counted():
    inner = FakeChat()

    def stop_early():
        pieces = InstrumentedChat(inner).stream("?", 9, NEVER)
        assert next(pieces) == "a"
        pieces.close()

    assert increase("hrag_chat_calls_total", stop_early, outcome="abandoned") == 1
    assert inner.closed


def test_the_duration_of_a_failed_build_is_not_recorded():
    def build(error: Exception | None = None):
        with suppress(KeyError), metrics.segment_build("tail"):
            if error:
                raise error

    assert increase("hrag_segment_build_seconds_count", build, kind="tail") == 1
    assert increase("hrag_segment_build_seconds_count", lambda: build(KeyError()), kind="tail") == 0


def test_recording_the_metrics_of_a_search_is_fast():
    """A search takes 300 us; recording its metrics must take much less."""
    stages = [(stage, 2e-5) for stage in ("embed", "search", "climb", "fetch")]
    rounds = 2000
    best_s = min(_recording_s(stages, rounds) for _ in range(5))
    assert best_s / rounds < 50e-6, "measured: 6 us; a busy machine needs more"


def _recording_s(stages: list[tuple[str, float]], rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        metrics.call_started()
        metrics.search_finished(stages)
        metrics.call_finished("Search", "OK", 3e-4)
    return time.perf_counter() - began


# The following tests cover readings, which are read each time that the metrics are scraped.


def _page_of(readings: Readings) -> str:
    registry = CollectorRegistry()
    registry.register(readings)
    return generate_latest(registry).decode()


def test_values_are_read_when_the_metrics_are_scraped():
    values = iter((1, 2))
    readings = Readings(lambda: [Reading("hrag_store_segments", next(values))])
    assert "hrag_store_segments 1.0" in _page_of(readings)
    assert "hrag_store_segments 2.0" in _page_of(readings)


def test_readings_of_one_name_are_one_metric_and_totals_are_counters():
    name = "hrag_cache_lookups_total"
    readings = Readings(lambda: [Reading(name, 3, {"cache": c}) for c in ("query", "sentence")])
    text = _page_of(readings)
    assert text.count("# TYPE") == 1
    assert f"# TYPE {name} counter" in text
    assert f'{name}{{cache="sentence"}} 3.0' in text


def test_metrics_that_cannot_be_read_are_omitted_and_logged():
    def read():
        raise StoreUnavailable("the disk is gone")

    with capture_logs() as logs:
        assert _page_of(Readings(read)) == ""
    assert [line["problem"] for line in logs] == ["the disk is gone"]


def test_the_totals_of_a_store_cover_all_its_collections(engine):
    plain, summarised = collection_settings(), collection_settings(summaries=SummaryUnit.CHUNK)
    engine.writer.create_collection("t", "c", plain)
    engine.writer.create_collection("u", "c", summarised)
    assert engine.writer.totals().embedded.largest_tail_leaves == 0
    leaf_counts = []
    for tenant, sentence_count in (("t", 40), ("u", 10)):
        document = prepared("d", sentences(sentence_count), plain)
        engine.writer.put(engine.open(tenant), document)
        leaf_counts.append(len(document.vectors))
    totals = engine.writer.totals()
    assert (totals.collections, totals.documents, totals.leaves) == (2, 2, sum(leaf_counts))
    assert (totals.embedded.tail_leaves, totals.embedded.largest_tail_leaves) == (
        sum(leaf_counts),
        max(leaf_counts),
    )
    assert (totals.unsummarised_documents, totals.summaries) == (1, 0)
    assert totals.text_bytes == len(sentences(40)) + len(sentences(10))
    document_without_summaries = engine.writer.next_unsummarised("fake")
    summary = Summary("All of it.", range(leaf_counts[1]))
    engine.writer.put_summaries(
        document_without_summaries, DocumentSummaries((summary,), unit_vectors(1, 3))
    )
    record = engine.seal("t")
    totals = engine.writer.totals()
    assert (totals.unsummarised_documents, totals.summaries, totals.documents) == (0, 1, 2)
    assert (totals.embedded.segments, totals.embedded.segment_bytes) == (1, record.size_bytes)
    assert totals.embedded.tail_leaves == leaf_counts[1] + 1
    assert totals.embedded.sequence == engine.reader.status().embedded.sequence
    assert min(totals.embedded.file_bytes, totals.embedded.disk_free_bytes, totals.vector_bytes) > 0
    engine.writer.delete_collection("u", "c")
    totals = engine.writer.totals()
    assert (totals.collections, totals.documents, totals.summaries) == (1, 1, 0)


# The following tests cover serving.


def test_metrics_are_served_over_http_until_the_context_manager_exits():
    reading = Readings(lambda: [Reading("hrag_store_leaves", 5)])
    with serve_metrics("127.0.0.1:0", INSTRUMENTS, reading) as port:
        scrape = Scrape(f"127.0.0.1:{port}")
        assert scrape.value("hrag_store_leaves") == 5
        assert "process_resident_memory_bytes" in scrape
        with pytest.raises(ServiceUnavailable, match=f"127.0.0.1:{port} for metrics"):
            serve_metrics(f"127.0.0.1:{port}").__enter__()
    with pytest.raises(OSError, match="refused"):
        Scrape(f"127.0.0.1:{port}")


def test_without_an_address_no_metrics_are_served():
    with serve_metrics("", INSTRUMENTS) as port:
        assert port == 0


def test_worker_metrics_have_one_label_value_per_serving_worker():
    def worker(leaves: int):
        return Readings(lambda: [Reading("hrag_reader_loaded_bytes", leaves)])

    with (
        serve_metrics("127.0.0.1:0", worker(5)) as first,
        serve_metrics("127.0.0.1:0", worker(7)) as second,
    ):
        with serve_metrics("127.0.0.1:0") as port_of_exited_worker:
            pass
        ports = [first, second, 0, port_of_exited_worker]
        with serve_metrics("127.0.0.1:0", WorkerMetrics(ports)) as port:
            scrape = Scrape(f"127.0.0.1:{port}")
    assert scrape.text.count("# TYPE hrag_reader_loaded_bytes") == 1
    loaded = "hrag_reader_loaded_bytes"
    assert [scrape.value(loaded, worker=str(n)) for n in (0, 1)] == [5, 7]
    assert {sample.labels["worker"] for sample in scrape[loaded].samples} == {"0", "1"}
    assert (scrape.value("hrag_workers"), scrape.value("hrag_workers_serving")) == (4, 3)


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (ReplyTooLarge("no"), "reply"),
        (TooLarge("no", field="filter"), "filter"),
        (TooLarge("no", field="text"), "request"),
    ],
)
def test_an_error_about_a_size_is_counted_by_what_is_too_large(error, limit):
    series = "hrag_size_refusals_total"
    assert increase(series, lambda: metrics.size_refused(error), limit=limit) == 1
    other = InvalidArgument("no", field="filter")
    assert increase(series, lambda: metrics.size_refused(other), limit=limit) == 0


def test_a_document_that_exceeds_a_limit_is_counted_by_its_limit():
    refused = TooLarge("no", field="content", limit="table_cells")
    series = "hrag_document_refusals_total"

    def count_two_failures() -> None:
        metrics.document_failed(refused)
        with pytest.raises(TooLarge), metrics.count_failed_document():
            raise refused

    assert increase(series, count_two_failures, limit="table_cells") == 2
    assert increase("hrag_documents_total", count_two_failures, outcome="failed") == 2
    other = InvalidArgument("no", field="content")
    for limit in LIMIT_NAMES:
        assert increase(series, lambda: metrics.document_failed(other), limit=limit) == 0
    metrics.document_failed(RuntimeError("no"))


def test_the_limits_of_documents_are_reported_and_counted_by_the_same_names():
    reported = {field.name for field in dataclasses.fields(Limits)}
    assert reported >= {*DOCUMENT_LIMITS}
    assert {*LIMIT_NAMES} - reported == {"parser_time", "parser_memory"}


def test_questions_that_were_made_to_stand_alone_are_counted_by_method():
    series = "hrag_standalone_questions_total"
    made = metrics.question_made_standalone
    assert increase(series, lambda: made(StandaloneMethod.LAST_TURNS), method="last_turns") == 1
    assert increase(series, lambda: made(StandaloneMethod.LAST_TURNS), method="model") == 0


def test_citations_that_are_removed_from_an_answer_are_counted():
    series = "hrag_answer_citations_removed_total"
    assert increase(series, lambda: metrics.citations_removed(3)) == 3
