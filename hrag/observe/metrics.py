"""Every metric of the services, defined once: name, labels, help text.

There are two kinds of metrics. Instruments are updated by the code whose work they count or time.
Readings are values that some component maintains anyway, such as the size of the store; they are
read only when Prometheus scrapes.

Labels have a small, fixed set of values, for example methods, codes and stages. A tenant or a
collection is never a label, because there may be ten thousand of them. Names follow the conventions
of Prometheus: the name of a counter ends in `_total`, and units are seconds and bytes.
All functions are thread-safe. This module does not serve metrics;
`hrag.server.serving.metrics_server` does.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import Metric

from hrag.host.watched_file import failing_settings
from hrag.observe.counts import CountGauge, LabelledCounter
from hrag.observe.histogram import BatchHistogram
from hrag.values.document_limits import LIMIT_NAMES
from hrag.values.errors import (
    DeadlineExceeded,
    HragError,
    InvalidArgument,
    NotSupported,
    PermissionDenied,
    ReplyTooLarge,
    TooBusy,
    TooLarge,
)

_log = structlog.get_logger()

# By default, prometheus_client adds a series `<name>_created` for each counter and histogram. The
# services do not export these series.
disable_created_metrics()  # type: ignore[no-untyped-call]

INSTRUMENTS = CollectorRegistry()
ProcessCollector(registry=INSTRUMENTS)

# The upper bounds of the histogram buckets in seconds. _FAST_S is for the stages of a search; a
# fast stage takes about 20 us. _CALL_S is for calls: a search takes 0.3 ms, and a call may wait 30
# s for a model. _MODEL_S is for requests to models and for the stages of ingestion. _BUILD_S is for
# builds of segments.
_FAST_S = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0)
_CALL_S = (2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
_MODEL_S = (1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_BUILD_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


def _counter(name: str, meaning: str, *labels: str) -> Counter:
    return Counter(name, meaning, labels, registry=INSTRUMENTS)


def _histogram(name: str, meaning: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(name, meaning, labels, registry=INSTRUMENTS, buckets=bounds)


# These instruments are used by both services.

_calls = LabelledCounter("hrag_calls_total", "Finished calls.", ("method", "code"), INSTRUMENTS)
_call_seconds = BatchHistogram(
    "hrag_call_seconds",
    "Duration of calls. A stream lasts until it ends.",
    _CALL_S,
    "method",
    INSTRUMENTS,
)
_calls_running = CountGauge(
    "hrag_calls_running",
    "Calls that have begun and not ended, including open streams and waiting calls.",
    INSTRUMENTS,
)
threads_busy = CountGauge(
    "hrag_threads_busy",
    "Threads of the pool that are running a call. Streams use other threads.",
    INSTRUMENTS,
)
unread_calls_cancelled = _counter(
    "hrag_unread_calls_cancelled_total",
    "Calls that the service cancelled because the client did not read the reply in time.",
)
connections_ended = _counter(
    "hrag_connections_ended_total",
    "Connections that the service ended because a call had far too many metadata pairs.",
)
_embedder_calls = _counter(
    "hrag_embedder_calls_total",
    "Requests to the embedder. A cache hit needs no request.",
    "outcome",
)
_embedder_seconds = _histogram(
    "hrag_embedder_seconds", "Duration of requests to the embedder, including retries.", _MODEL_S
)
_embedder_texts = _counter("hrag_embedder_texts_total", "Texts sent to the embedder.")
_embedder_tokens = _counter(
    "hrag_embedder_tokens_total", "Input tokens that the embedding endpoint reported."
)
_chat_calls = _counter("hrag_chat_calls_total", "Requests to the chat model.", "outcome")
_chat_seconds = _histogram(
    "hrag_chat_seconds",
    "Duration of requests to the chat model, until the end of the text.",
    _MODEL_S,
)
_chat_tokens = _counter("hrag_chat_tokens_total", "Tokens that the chat endpoint reported.", "kind")
_quota_refusals = _counter(
    "hrag_quota_refusals_total",
    "Calls and documents that exceeded a quota of their tenant.",
    "quota",
)
_throttled = _counter(
    "hrag_throttled_total",
    "Number of times that a streamed document waited for its tenant's rate limit.",
)

_size_refusals = _counter(
    "hrag_size_refusals_total",
    "Requests, filters and replies that were refused because they exceed a limit of their size.",
    "limit",
)
for _limit in ("request", "filter", "reply"):
    _size_refusals.labels(_limit)

# These instruments are used by the gateway.

_http_refusals = _counter(
    "hrag_http_refusals_total",
    "Requests and connections that the gateway refused itself, so that no service got them.",
    "reason",
)
_HTTP_REASONS: dict[type[HragError], str] = {
    TooLarge: "size",
    DeadlineExceeded: "time",
    TooBusy: "busy",
    PermissionDenied: "host",
    NotSupported: "encoding",
}
for _reason in (
    *("form", "head_size", "route", "invalid", "json_values", "json_depth", "connections"),
    *_HTTP_REASONS.values(),
):
    _http_refusals.labels(_reason)

# These instruments are used by the retriever.

_search_stages = BatchHistogram(
    "hrag_search_stage_seconds",
    "Duration of each stage of a search.",
    _FAST_S,
    "stage",
    INSTRUMENTS,
)
evictions = _counter(
    "hrag_reader_evictions_total", "Collections evicted to stay within the memory budget."
)
_reranker_calls = _counter("hrag_reranker_calls_total", "Requests to the reranker.", "outcome")
_reranker_seconds = _histogram(
    "hrag_reranker_seconds", "Duration of requests to the reranker, including retries.", _MODEL_S
)
_reranker_texts = _counter("hrag_reranker_texts_total", "Texts sent to the reranker.")
_reranker_tokens = _counter(
    "hrag_reranker_tokens_total", "Tokens that the reranking endpoint reported."
)
_removed_citations = _counter(
    "hrag_answer_citations_removed_total",
    "Citations removed from answers because a statement or an answer had too many.",
)

_standalone_questions = _counter(
    "hrag_standalone_questions_total",
    "Questions of conversations that were made to stand alone, by method: model or last_turns.",
    "method",
)
_search_fallbacks = _counter(
    "hrag_search_fallbacks_total",
    "HYBRID searches that could not use one source: dense or lexical.",
    "missing",
)
for _source in ("dense", "lexical"):
    # Creates the series with the value 0. If the first value were 1, Prometheus's `rate` would miss
    # the first increment.
    _search_fallbacks.labels(_source)

# These instruments are used by the indexer.

_ingest_stages = _histogram(
    "hrag_ingest_stage_seconds",
    "Duration of each stage of ingestion, per document or per batch of a stream.",
    _MODEL_S,
    "stage",
)
_parser_calls = _counter(
    "hrag_parser_calls_total",
    "Files sent to parser processes, for example PDF, HTML and Office documents, and long texts "
    "with sections or tables.",
    "outcome",
)
recognised_pages = _counter(
    "hrag_recognised_pages_total", "Pages of scans and pictures sent to text recognition."
)
_page_images = _counter(
    "hrag_page_images_total", "Page images, by whether they were cached or rendered.", "outcome"
)
_documents = _counter(
    "hrag_documents_total", "Documents sent for ingestion, by outcome.", "outcome"
)
_document_refusals = _counter(
    "hrag_document_refusals_total",
    "Documents that were refused because their contents exceed a limit.",
    "limit",
)
for _limit in LIMIT_NAMES:
    _document_refusals.labels(_limit)
_segment_build_seconds = _histogram(
    "hrag_segment_build_seconds", "Duration of segment builds.", _BUILD_S, "kind"
)
segment_build_failures = _counter(
    "hrag_segment_build_failures_total", "Failed runs of index maintenance; they are retried."
)
summary_failures = _counter(
    "hrag_summary_failures_total", "Failed attempts to summarise a document; they are retried."
)
reembedded_documents = _counter(
    "hrag_reembedded_documents_total",
    "Documents embedded again for a collection that moves to another embedder.",
)

# The keys are the names of the readings, and the values are their help texts. A reading is a value
# that a component maintains anyway; it is read when Prometheus scrapes. If the name of a reading
# ends in `_total`, the reading is exported as a counter, otherwise as a gauge.
READINGS = {
    "hrag_build_info": "Always 1; the label is the version of hrag.",
    "hrag_threads": "Number of calls that may run at the same time (HRAG_THREADS).",
    "hrag_files_failing": (
        "1 if the files that a setting names cannot be read or are invalid, so that their last "
        "valid version stays in use; otherwise 0."
    ),
    "hrag_cache_lookups_total": "Lookups in the vector caches.",
    "hrag_reader_sequence": "Sequence number of the store's last commit.",
    "hrag_reader_applied_sequence": (
        "Sequence number up to which all loaded collections contain the store's commits."
    ),
    "hrag_reader_lag_seconds": "Time for which commits have been waiting to be applied.",
    "hrag_reader_collections_loaded": "Collections loaded in memory.",
    "hrag_reader_loaded_bytes": "Memory of the loaded collections.",
    "hrag_reader_budget_bytes": "Memory budget of this process.",
    "hrag_reader_damaged_segments": "Damaged segments; their leaves or vectors come from LMDB.",
    "hrag_workers": "Configured number of retriever processes (HRAG_WORKERS).",
    "hrag_workers_serving": "Retriever processes that are serving.",
    "hrag_store_sequence": "Sequence number of the last commit.",
    "hrag_store_collections": "Collections of all tenants.",
    "hrag_store_documents": "Documents of all collections.",
    "hrag_store_leaves": "Leaves of all documents.",
    "hrag_store_summaries": "Summaries of all collections.",
    "hrag_store_unsummarised_documents": "Documents whose summaries are pending.",
    "hrag_store_tail_leaves": "Leaves and summaries that are not in a segment yet.",
    "hrag_store_largest_tail_leaves": "Tail leaves of the collection with the most tail leaves.",
    "hrag_store_segment_min_leaves": (
        "Tail size that starts a segment build (HRAG_SEGMENT_MIN_LEAVES)."
    ),
    "hrag_store_segments": "Segments of all collections.",
    "hrag_store_segment_bytes": "Size of all segment files.",
    "hrag_store_text_bytes": "Size of all document texts.",
    "hrag_store_vector_bytes": "Size of all vectors in LMDB.",
    "hrag_store_file_bytes": "Size of the LMDB file.",
    "hrag_store_disk_free_bytes": "Free space on the disk of the store.",
    "hrag_store_disk_reserve_bytes": "Free space below which writes are refused.",
}


def call_started() -> None:
    """Adds one to the number of running calls."""
    _calls_running.change(1)


def call_finished(method: str, code: str, seconds: float) -> None:
    """Records a finished call. `method` is the method's name without the service's name."""
    _calls_running.change(-1)
    _calls.increment(method, code)
    _call_seconds.observe(((method, seconds),))


def call_rejected(method: str, code: str) -> None:
    """Counts a call that was rejected before its handler ran. No duration is recorded."""
    _calls.increment(method, code)


def size_refused(error: HragError) -> None:
    """Counts an error that says which limit a request, a filter or a reply exceeds.

    Does nothing for any other error.
    """
    if isinstance(error, ReplyTooLarge):
        _size_refusals.labels("reply").inc()
    elif isinstance(error, TooLarge):
        _size_refusals.labels("filter" if error.field == "filter" else "request").inc()


def http_refused(reason: str) -> None:
    """Counts a request or a connection that the gateway refused.

    `reason` is `form` (it is not in the strict form of HTTP), `head_size`, `route` (the path, the
    method or the media type), `time` (it did not arrive, or the reply was not read, in time) or
    `connections` (there are too many).
    """
    _http_refusals.labels(reason).inc()


def http_request_refused(error: HragError) -> None:
    """Counts a request that the gateway refused with `error`. Ignores errors of the gateway."""
    if isinstance(error, InvalidArgument):
        http_refused(error.limit or _HTTP_REASONS.get(type(error), "invalid"))
    elif type(error) in _HTTP_REASONS:
        http_refused(_HTTP_REASONS[type(error)])


def search_fallback(missing: str) -> None:
    """Counts a HYBRID search that could not use the source `missing`: `dense` or `lexical`."""
    _search_fallbacks.labels(missing).inc()


def question_made_standalone(method: str) -> None:
    """Counts a question of a conversation that was made to stand alone: `model`, `last_turns`."""
    _standalone_questions.labels(method).inc()


def citations_removed(count: int) -> None:
    """Adds citations that were removed from an answer because there were too many."""
    _removed_citations.inc(count)


def search_finished(stages: Iterable[tuple[str, float]]) -> None:
    """Records the name and the duration in seconds of each stage of a search."""
    _search_stages.observe(stages)


def document_finished(outcome: str) -> None:
    """Counts an ingested document; `outcome` is `created`, `updated`, `unchanged` or `failed`."""
    _documents.labels(outcome).inc()


def document_failed(error: Exception) -> None:
    """Counts a document that was not ingested, and the limit that its contents exceed, if any."""
    document_finished("failed")
    if isinstance(error, HragError) and error.limit:
        _document_refusals.labels(error.limit).inc()


@contextmanager
def count_failed_document() -> Iterator[None]:
    """Counts a document as `document_failed` does if the `with` block raises an exception."""
    try:
        yield
    except Exception as error:
        document_failed(error)
        raise


def quota_refused(quota: str) -> None:
    """Counts a call or a document that was refused because of a tenant's quota.

    `quota` is `calls`, `bytes`, `documents` or `collections`.
    """
    _quota_refusals.labels(quota).inc()


def document_throttled() -> None:
    """Counts that a document of a stream had to wait because of its tenant's rate limit."""
    _throttled.inc()


def embedder_tokens(count: int) -> None:
    """Adds the input tokens that an embedding endpoint reported."""
    _embedder_tokens.inc(count)


def reranker_tokens(count: int) -> None:
    """Adds the tokens that a reranking endpoint reported."""
    _reranker_tokens.inc(count)


def chat_tokens(prompt: int, completion: int) -> None:
    """Adds the input and output tokens that a chat endpoint reported."""
    _chat_tokens.labels("prompt").inc(prompt)
    _chat_tokens.labels("completion").inc(completion)


class EmbedderRequest:
    """Counts the request to the embedder that the `with` block makes; records its duration.

    `texts` is how many texts the request contains. These texts are counted, too. It is a class,
    because each query is embedded, and a generator with `contextmanager` takes four times as long.
    """

    def __init__(self, texts: int) -> None:
        _embedder_texts.inc(texts)

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        _embedder_seconds.observe(time.perf_counter() - self._began)
        _embedder_calls.labels(_outcome(error)).inc()


@contextmanager
def chat_request() -> Iterator[None]:
    """Counts the request to the chat model that the `with` block makes; records its duration.

    The block must last until the last part of the model's text has arrived.
    """
    with _chat_seconds.time(), _count_outcome(_chat_calls):
        yield


@contextmanager
def reranker_request(texts: int) -> Iterator[None]:
    """Counts the request to the reranker that the `with` block makes; records its duration.

    `texts` is how many texts the request contains. These texts are counted, too.
    """
    _reranker_texts.inc(texts)
    with _reranker_seconds.time(), _count_outcome(_reranker_calls):
        yield


@contextmanager
def parser_call() -> Iterator[None]:
    """Counts a file that a parser process parses during the `with` block, by outcome."""
    with _count_outcome(_parser_calls):
        yield


@contextmanager
def ingest_stage(stage: str) -> Iterator[None]:
    """Records the duration of the stage of ingestion that the `with` block performs.

    `stage` is `extract`, `cut`, `embed` or `commit`.
    """
    with _ingest_stages.labels(stage).time():
        yield


@contextmanager
def segment_build(kind: str) -> Iterator[None]:
    """Records the duration of the segment build that the `with` block performs.

    `kind` is `tail` for a segment that is built from the tail, and `merge` for a segment that
    replaces other segments. A build that raises an exception is not recorded.
    """
    started = time.perf_counter()
    yield
    _segment_build_seconds.labels(kind).observe(time.perf_counter() - started)


@contextmanager
def _count_outcome(calls: Counter) -> Iterator[None]:
    """Adds one to the counter `calls`, with the outcome of the `with` block as its label."""
    try:
        yield
    except BaseException as error:
        calls.labels(_outcome(error)).inc()
        raise
    calls.labels(_outcome(None)).inc()


def _outcome(error: BaseException | None) -> str:
    """Returns the outcome of a request that raised `error`, or `ok` if it is None.

    The outcome is the class name of an HragError, `abandoned` for a GeneratorExit, which means that
    the caller closed the generator, or `error` for any other exception.
    """
    match error:
        case None:
            return "ok"
        case HragError():
            return type(error).__name__
        case GeneratorExit():
            return "abandoned"
    return "error"


@dataclass(frozen=True, slots=True)
class Reading:
    """The current value of a metric that READINGS names, for one combination of labels."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def file_readings() -> Iterator[Reading]:
    """Yields for each setting that names watched files whether these files are failing."""
    for setting, is_failing in failing_settings().items():
        yield Reading("hrag_files_failing", is_failing, {"setting": setting})


class Readings:
    """A Prometheus collector that calls the function `read` at each scrape.

    `read` returns the current values of metrics. All values of the same metric must follow one
    another.
    """

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> list[Metric]:
        """Returns the metrics.

        If they cannot be read now, logs a warning and returns an empty list, so that the scrape
        still gets the metrics of the other collectors.
        """
        try:
            readings = list(self._read())
        except HragError as error:
            _log.warning("metrics_read_failed", problem=error.message)
            return []
        grouped = groupby(readings, attrgetter("name"))
        return [_family(name, list(group)) for name, group in grouped]


def _family(name: str, readings: list[Reading]) -> Metric:
    kind = "counter" if name.endswith("_total") else "gauge"
    family = Metric(name.removesuffix("_total"), READINGS[name], kind)
    for reading in readings:
        family.add_sample(name, dict(reading.labels), reading.value)
    return family


def page_shown(*, is_cached: bool) -> None:
    """Counts a page image that was requested."""
    _page_images.labels("cached" if is_cached else "rendered").inc()
