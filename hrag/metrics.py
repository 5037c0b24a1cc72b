"""Every metric of the services, once: its name, its labels and what it means.

Instruments are recorded in by whoever does the work. Readings are of what somebody keeps
anyway, and are taken only when somebody looks. Labels have few values, such as methods,
codes and stages: never a tenant or a collection, of which there may be ten thousand.
Knows nothing of how metrics are served.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import Metric

from hrag.errors import HragError

_log = structlog.get_logger()

disable_created_metrics()  # type: ignore[no-untyped-call]  # One more series for each counter.

INSTRUMENTS = CollectorRegistry()
ProcessCollector(registry=INSTRUMENTS)

# A search takes 0.3 ms, a stage of it some 20 us; a call may wait 30 s for a model.
_FAST_S = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0)
_CALL_S = (2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
_MODEL_S = (1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_BUILD_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


def _counter(name: str, meaning: str, *labels: str) -> Counter:
    return Counter(name, meaning, labels, registry=INSTRUMENTS)


def _histogram(name: str, meaning: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(name, meaning, labels, registry=INSTRUMENTS, buckets=bounds)


# Instruments of both services

_calls = _counter("hrag_calls_total", "Calls that have ended.", "method", "code")
_call_seconds = _histogram(
    "hrag_call_seconds", "How long calls took, streams to their end.", _CALL_S, "method"
)
_calls_running = Gauge(
    "hrag_calls_running", "Calls that run now, each in a thread.", registry=INSTRUMENTS
)
_embedder_calls = _counter(
    "hrag_embedder_calls_total", "Requests to the embedder, cached queries aside.", "outcome"
)
_embedder_seconds = _histogram(
    "hrag_embedder_seconds", "How long the embedder took, its retries included.", _MODEL_S
)
_embedder_texts = _counter("hrag_embedder_texts_total", "Texts that were given to the embedder.")
_embedder_tokens = _counter(
    "hrag_embedder_tokens_total", "Tokens that an embedding endpoint says it has read."
)
_chat_calls = _counter("hrag_chat_calls_total", "Requests to the chat model.", "outcome")
_chat_seconds = _histogram(
    "hrag_chat_seconds", "How long the chat model took, to the end of its text.", _MODEL_S
)
_chat_tokens = _counter(
    "hrag_chat_tokens_total", "Tokens that the chat endpoint says it has read or written.", "kind"
)
_quota_refusals = _counter(
    "hrag_quota_refusals_total", "Calls and documents refused for a tenant's quota.", "quota"
)
_quota_waits = _counter(
    "hrag_quota_waits_total", "Times a document of a stream waited for its tenant's rate."
)

# Of the retriever

_search_stages = _histogram(
    "hrag_search_stage_seconds", "How long each stage of a search took.", _FAST_S, "stage"
)
unloads = _counter(
    "hrag_reader_unloads_total", "Collections let go to stay within the memory budget."
)

# Of the indexer

_ingest_stages = _histogram(
    "hrag_ingest_stage_seconds",
    "How long each stage took, of one document or of a group of a stream.",
    _MODEL_S,
    "stage",
)
_documents = _counter("hrag_documents_total", "Documents by what became of them.", "outcome")
_seal_seconds = _histogram(
    "hrag_seal_seconds", "How long segments took to build, of a tail or by a merge.", _BUILD_S, "of"
)
seal_failures = _counter(
    "hrag_seal_failures_total", "Times the index could not be put in order; tried again."
)
summary_failures = _counter(
    "hrag_summary_failures_total", "Times a document's summaries could not be made; tried again."
)

# Readings, by their names; those that end in `_total` only grow.
READINGS = {
    "hrag_build_info": "1, with the version of hrag.",
    "hrag_threads": "Calls that can run at once, HRAG_THREADS; others wait.",
    "hrag_cache_lookups_total": "Vectors looked up in the caches of queries and sentences.",
    "hrag_reader_sequence": "The store's last change.",
    "hrag_reader_applied_sequence": "The last change that all loaded collections have.",
    "hrag_reader_lag_seconds": "For how long the background has not reached the last change.",
    "hrag_reader_collections_loaded": "Collections in memory.",
    "hrag_reader_loaded_bytes": "Memory of the collections that are loaded.",
    "hrag_reader_budget_bytes": "The memory budget of this process.",
    "hrag_reader_damaged_segments": "Segments that cannot be read and are scanned exactly.",
    "hrag_workers": "Retriever processes that there should be, HRAG_WORKERS.",
    "hrag_workers_serving": "Retriever processes that serve.",
    "hrag_store_sequence": "The last committed change.",
    "hrag_store_collections": "Collections of all tenants.",
    "hrag_store_documents": "Documents of all collections.",
    "hrag_store_leaves": "Leaves of all documents.",
    "hrag_store_summaries": "Summaries of all collections.",
    "hrag_store_unsummarised_documents": "Documents that wait for their summaries.",
    "hrag_store_tail_leaves": "Leaves and summaries that no segment holds yet.",
    "hrag_store_largest_tail_leaves": "The same of the collection that has most.",
    "hrag_store_segment_min_leaves": "Leaves at which a tail is sealed, HRAG_SEAL_LEAVES.",
    "hrag_store_segments": "Segments of all collections.",
    "hrag_store_segment_bytes": "Size of all segments' files.",
    "hrag_store_text_bytes": "Size of all documents' texts.",
    "hrag_store_vector_bytes": "Size of all vectors in LMDB.",
    "hrag_store_file_bytes": "Size of LMDB's file.",
    "hrag_store_disk_free_bytes": "Free space on the disk of the store.",
    "hrag_store_disk_reserve_bytes": "Free space below which documents are refused.",
}


def call_began() -> None:
    """A call of ours runs from now on."""
    _calls_running.inc()


def call_ended(method: str, code: str, seconds: float) -> None:
    """It has ended; `method` without its service."""
    _calls_running.dec()
    ended, took = _call_instruments(method, code)
    ended.inc()
    took.observe(seconds)


def call_refused(method: str, code: str) -> None:
    """A call has ended before it began: there are too many."""
    ended, _took = _call_instruments(method, code)
    ended.inc()


def searched(stages: Iterable[tuple[str, float]]) -> None:
    """What the stages of a search took, in seconds; those that it had."""
    for stage, seconds in stages:
        _search_stage(stage).observe(seconds)


def document_ended(outcome: str) -> None:
    """A document was created, updated, found unchanged, or failed."""
    _documents.labels(outcome).inc()


@contextmanager
def failing_document() -> Iterator[None]:
    """Around the ingesting of a document, which it counts if it fails."""
    with _documents.labels("failed").count_exceptions():
        yield


def quota_refused(quota: str) -> None:
    """A tenant has used up its calls, bytes, documents or collections and asked for more."""
    _quota_refusals.labels(quota).inc()


def stream_slowed() -> None:
    """A document of a stream waits until its tenant may send one."""
    _quota_waits.inc()


def embedder_tokens(count: int) -> None:
    """An endpoint says that it has read so many."""
    _embedder_tokens.inc(count)


def chat_tokens(prompt: int, completion: int) -> None:
    """An endpoint says that it has read and written so many."""
    _chat_tokens.labels("prompt").inc(prompt)
    _chat_tokens.labels("completion").inc(completion)


@contextmanager
def embedding(texts: int) -> Iterator[None]:
    """Around a request to the embedder."""
    _embedder_texts.inc(texts)
    with _embedder_seconds.time(), _told(_embedder_calls):
        yield


@contextmanager
def chatting() -> Iterator[None]:
    """Around a request to the chat model, to the end of its text."""
    with _chat_seconds.time(), _told(_chat_calls):
        yield


@contextmanager
def ingesting(stage: str) -> Iterator[None]:
    """Around a stage of ingesting."""
    with _ingest_stages.labels(stage).time():
        yield


@contextmanager
def sealing(of: str) -> Iterator[None]:
    """Around the building of a segment; one that is given up counts for nothing."""
    began = time.perf_counter()
    yield
    _seal_seconds.labels(of).observe(time.perf_counter() - began)


@contextmanager
def _told(calls: Counter) -> Iterator[None]:
    """Counts how it ends: ok, an error by its name, or abandoned by whoever had asked."""
    outcome = "error"
    try:
        yield
        outcome = "ok"
    except GeneratorExit:
        outcome = "abandoned"
        raise
    except HragError as error:
        outcome = type(error).__name__
        raise
    finally:
        calls.labels(outcome).inc()


@cache  # Of a child it costs 0.05 us, where its parent takes 0.9 to find it.
def _call_instruments(method: str, code: str) -> tuple[Counter, Histogram]:
    return _calls.labels(method, code), _call_seconds.labels(method)


@cache
def _search_stage(stage: str) -> Histogram:
    return _search_stages.labels(stage)


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one of READINGS."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


class Readings:
    """A collector whose values are read when somebody looks; equal names stand together."""

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> list[Metric]:
        """What cannot be read now is not there; the rest of the metrics must not suffer."""
        try:
            readings = list(self._read())
        except HragError as error:
            _log.warning("cannot_measure", problem=error.message)
            return []
        grouped = groupby(readings, attrgetter("name"))
        return [_family(name, list(each)) for name, each in grouped]


def _family(name: str, readings: list[Reading]) -> Metric:
    kind = "counter" if name.endswith("_total") else "gauge"
    family = Metric(name.removesuffix("_total"), READINGS[name], kind)
    for each in readings:
        family.add_sample(name, dict(each.labels), each.value)
    return family
