"""The composition root of the retriever: opens the store, the models and the server."""

import sys
import threading
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version

import structlog

from hrag.config import RetrieverSettings
from hrag.engine import Reader, open_engine
from hrag.engine.common.labels import MAX_LEAVES
from hrag.models.chat.chat_factory import open_chat
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.embedder_factory import open_search_embedders
from hrag.models.rerank.reranker_factory import open_reranker
from hrag.observe import metrics
from hrag.server.serving import grpc_server, workers
from hrag.server.serving.metrics_access import open_metrics_access
from hrag.server.serving.metrics_server import serve_metrics
from hrag.server.serving.protection import open_protection
from hrag.server.serving.service_process import (
    report_serving,
    serve_until_stopped,
    stop_on_eof,
    wait_for_store,
)
from hrag.server.serving.worker_metrics import WorkerMetrics
from hrag.v1 import retriever_pb2, retriever_pb2_grpc
from hrag.values.document_limits import DOCUMENT_LIMITS
from hrag.values.filters import (
    MAX_FILTER_CONDITIONS,
    MAX_FILTER_DEPTH,
    MAX_FILTER_RANGES,
    MAX_FILTER_TERMS,
)
from hrag.values.limits import (
    DEFAULT_CANDIDATES,
    DEFAULT_LIMIT,
    MAX_ANSWER_BYTES,
    MAX_ANSWER_CITATIONS,
    MAX_BATCH_REFUSALS,
    MAX_BATCH_SEARCHES,
    MAX_CALL_METADATA_PAIRS,
    MAX_CANDIDATES,
    MAX_EMBEDDED_BYTES,
    MAX_HISTORY_BYTES,
    MAX_HISTORY_TURNS,
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
    MAX_LEVELS,
    MAX_LIMIT,
    MAX_METADATA_BYTES,
    MAX_METADATA_VALUES,
    MAX_QUERY_BYTES,
    MAX_STATEMENT_CITATIONS,
)
from hrag.values.page_images import MAX_DPI, MAX_PAGE_BOXES, MAX_PAGE_SPANS
from hrag.values.reply_limit import ReplyLimit
from hrag.values.status import Limits, ServerInfo
from retriever_svc.answer import AnswerPipeline, AnswerSetup, unconfigured
from retriever_svc.browse import Browse
from retriever_svc.prompt import load_prompt
from retriever_svc.rerank_stage import RerankSetup
from retriever_svc.scraped_metrics import readings
from retriever_svc.search_models import SearchModel
from retriever_svc.search_pipeline import Search
from retriever_svc.search_requests import SearchRequests
from retriever_svc.servicer import RetrieverServicer

_log = structlog.get_logger()

# The switch interval of Python's interpreter lock. A search waits about this long for the lock if
# another thread computes, for example the thread that reads the change log. Python's default
# interval of 5 ms is as long as several searches, so this interval is shorter.
_SWITCH_S = 0.0002
# A worker process serves its metrics on any free local port. The supervisor process collects the
# metrics of all workers and serves them.
_WORKER_METRICS = "127.0.0.1:0"

SERVICE = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"].full_name


def serve(settings: RetrieverSettings, stopping: threading.Event) -> None:
    """Serves calls until `stopping` is set, with `settings.workers` processes.

    Raises HragError or SettingsError if the store, a model, a file or a port cannot be opened.
    """
    if settings.workers == 1:
        _serve(settings, stopping, as_worker=False)
        return
    ports = [0] * settings.workers
    access = open_metrics_access(settings, settings.metrics_address)
    worker_metrics = WorkerMetrics(ports, access)
    with serve_metrics(settings.metrics_address, worker_metrics, access=access):
        workers.supervise(
            workers.worker_command(),
            ports,
            settings.address,
            settings.drain_s,
            stopping,
            report_serving if settings.stop_on_eof else None,
        )


def serve_as_worker(address: str, settings: RetrieverSettings, stopping: threading.Event) -> None:
    """Serves calls at `address` as one of several worker processes.

    The memory that the settings allow is divided equally among the workers. Raises the errors of
    `serve`.
    """
    # A worker must stop when its standard input ends. If the setting `stop_on_eof` is set, the
    # process already watches its standard input.
    if not settings.stop_on_eof:
        stop_on_eof(stopping)
    memory_bytes = settings.memory_bytes // settings.workers
    overrides = {"address": address, "memory_bytes": memory_bytes}
    if settings.metrics_address:
        overrides |= {"metrics_address": _WORKER_METRICS, "metrics_tls": False}
    _serve(settings.model_copy(update=overrides), stopping, as_worker=True)


def _serve(settings: RetrieverSettings, stopping: threading.Event, *, as_worker: bool) -> None:
    """Waits until the store exists, then serves calls until `stopping` is set."""
    sys.setswitchinterval(_SWITCH_S)
    protection = open_protection(settings, settings.address)
    metrics_access = open_metrics_access(settings, settings.metrics_address)
    with ExitStack() as closing:
        embedders, *previous_embedders = open_search_embedders(settings)
        embedder = embedders.queries
        answer_setup = _answer_setup(settings)
        rerank_setup = _rerank_setup(settings)
        engine = open_engine(settings)
        closing.callback(engine.close)
        reader = wait_for_store(engine.reader, stopping)
        if reader is None:
            return
        _log.info("store_opened", engine=engine.name, store=engine.location)
        reader.preload()
        queries = CachedQueries(embedder, settings.query_cache_entries)
        sentence_embedder = CachedQueries(embedders.passages, settings.sentence_cache_entries)
        caches = {"query": queries, "sentence": sentence_embedder}
        previous = []
        for pair in previous_embedders:
            caches["previous_query"] = CachedQueries(pair.queries, settings.query_cache_entries)
            previous.append(SearchModel(pair.queries, caches["previous_query"]))
        metric_readings = metrics.Readings(partial(readings, reader, caches, settings))
        collectors = (metrics.INSTRUMENTS, metric_readings)
        port = closing.enter_context(
            serve_metrics(settings.metrics_address, *collectors, access=metrics_access)
        )
        reply = ReplyLimit(settings.max_reply_bytes)
        search = Search(
            reader,
            embedder,
            queries,
            settings.return_level,
            allows_fallback=settings.hybrid_fallback,
            reranking=rerank_setup,
            reply=reply,
            previous=previous,
        )
        servicer = RetrieverServicer(
            search,
            unconfigured
            if answer_setup is None
            else AnswerPipeline(search, sentence_embedder, answer_setup, reply),
            Browse(reader, reply),
            partial(_server_info, settings, embedder.name, answer_setup, reader),
            reply,
        )
        listening = grpc_server.build(
            settings,
            protection,
            settings.address,
            SERVICE,
            partial(retriever_pb2_grpc.add_RetrieverServiceServicer_to_server, servicer),
            share_port=as_worker,
            deserializers={f"/{SERVICE}/Search": SearchRequests()},
        )
        reports = as_worker or settings.stop_on_eof
        on_serving = partial(report_serving, port) if reports else None
        serve_until_stopped(listening, settings.drain_s, stopping, engine.require_store, on_serving)


def _answer_setup(settings: RetrieverSettings) -> AnswerSetup | None:
    """Returns the chat model with its prompt and limits, or None if no model is configured.

    Raises SettingsError if a setting is invalid or the prompt cannot be read.
    """
    chat = open_chat(settings)
    if chat is None:
        return None
    return AnswerSetup(
        chat,
        load_prompt(settings.answer_prompt_file),
        max_concurrent=settings.concurrent_answers,
        max_tokens=settings.answer_max_tokens,
        passage_tokens=settings.answer_passage_tokens,
        standalone_timeout_s=settings.standalone_timeout_s,
    )


def _rerank_setup(settings: RetrieverSettings) -> RerankSetup | None:
    """Returns the reranker with its limits, or None if no reranker is configured.

    Raises SettingsError if a setting is invalid.
    """
    reranker = open_reranker(settings)
    if reranker is None:
        return None
    return RerankSetup(
        reranker,
        top=settings.rerank_top,
        leaves=settings.rerank_leaves,
        text_tokens=settings.rerank_text_tokens,
    )


def _server_info(
    settings: RetrieverSettings, embedder: str, answer_setup: AnswerSetup | None, reader: Reader
) -> ServerInfo:
    return ServerInfo(
        version=version("hrag"),
        embedder=embedder,
        return_level=settings.return_level,
        default_limit=DEFAULT_LIMIT,
        default_candidates=DEFAULT_CANDIDATES,
        limits=Limits(
            document_bytes=settings.max_document_bytes,
            metadata_bytes=MAX_METADATA_BYTES,
            query_bytes=MAX_QUERY_BYTES,
            limit=MAX_LIMIT,
            candidates=MAX_CANDIDATES,
            levels=MAX_LEVELS,
            concurrent_calls=settings.max_concurrent_calls,
            batch_searches=MAX_BATCH_SEARCHES,
            filter_depth=MAX_FILTER_DEPTH,
            filter_terms=MAX_FILTER_TERMS,
            answer_tokens=answer_setup.max_tokens if answer_setup else 0,
            concurrent_answers=answer_setup.max_concurrent if answer_setup else 0,
            reply_bytes=settings.max_reply_bytes,
            embedded_bytes=MAX_EMBEDDED_BYTES,
            filter_conditions=MAX_FILTER_CONDITIONS,
            filter_ranges=MAX_FILTER_RANGES,
            statement_citations=MAX_STATEMENT_CITATIONS,
            answer_citations=MAX_ANSWER_CITATIONS,
            answer_bytes=MAX_ANSWER_BYTES,
            metadata_values=MAX_METADATA_VALUES,
            json_values=MAX_JSON_VALUES,
            json_depth=MAX_JSON_DEPTH,
            batch_refusals=MAX_BATCH_REFUSALS,
            call_metadata_pairs=MAX_CALL_METADATA_PAIRS,
            history_turns=MAX_HISTORY_TURNS,
            history_bytes=MAX_HISTORY_BYTES,
            document_leaves=MAX_LEAVES,
            page_spans=MAX_PAGE_SPANS,
            page_dpi=MAX_DPI,
            page_boxes=MAX_PAGE_BOXES,
            **DOCUMENT_LIMITS,
        ),
        reader=reader.status(),
        chat_model=answer_setup.chat.name if answer_setup else "",
    )
