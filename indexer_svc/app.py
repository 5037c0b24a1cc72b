"""The composition root of the indexer.

It opens the models, the store, the parsers and the server, connects them, and closes them.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import structlog

from hrag.config import IndexerSettings
from hrag.engine import Maintenance, Writer, open_engine
from hrag.models.chat.chat_factory import open_chat
from hrag.models.embedding import Embedder
from hrag.models.embedding.embedder_factory import open_embedder
from hrag.observe import metrics
from hrag.server.serving import grpc_server
from hrag.server.serving.metrics_access import open_metrics_access
from hrag.server.serving.metrics_server import serve_metrics
from hrag.server.serving.protection import open_protection
from hrag.server.serving.service_process import abandon, report_serving, serve_until_stopped
from hrag.v1 import indexer_pb2, indexer_pb2_grpc
from hrag.values.reply_limit import ReplyLimit
from indexer_svc.ingest_pipeline import Defaults, Pipeline
from indexer_svc.parsers.parser_pool import ParserPool
from indexer_svc.scraped_metrics import readings
from indexer_svc.servicer import IndexerServicer
from indexer_svc.stored_catalog import StoredCatalog
from indexer_svc.summariser import Summariser, SummaryLimits
from indexer_svc.text_recognition import NO_RECOGNITION, TextRecognition, has_ocr_extra

_log = structlog.get_logger()

SERVICE = indexer_pb2.DESCRIPTOR.services_by_name["IndexerService"].full_name


def serve(settings: IndexerSettings, stopping: threading.Event) -> None:
    """Serves until `stopping` is set.

    Closes everything that it has opened, in the reverse order of opening. Raises HragError or
    SettingsError if something cannot be opened.
    """
    # A thread inherits the niceness of the thread that starts it. So this niceness applies to all
    # threads that are started below.
    os.nice(settings.niceness)
    protection = open_protection(settings, settings.address)
    metrics_access = open_metrics_access(settings, settings.metrics_address)
    with ExitStack() as stack:
        embedder = open_embedder(settings)
        chat = open_chat(settings)
        engine = open_engine(settings)
        stack.callback(engine.close)
        writer = engine.writer(protection.quota_of)
        _log.info("store_opened", engine=engine.name, store=engine.location)
        maintenance = engine.maintenance()
        collectors = (metrics.INSTRUMENTS, metrics.Readings(partial(readings, writer, settings)))
        stack.enter_context(
            serve_metrics(settings.metrics_address, *collectors, access=metrics_access)
        )
        parsers = ParserPool(
            settings.parsers, settings.parser_memory_bytes, settings.parser_timeout_s
        )
        stack.callback(parsers.close)
        recognition = stack.enter_context(_text_recognition(settings))
        servicer = _servicer(settings, writer, embedder, parsers, recognition, stopping)
        listening = grpc_server.build(
            settings,
            protection,
            settings.address,
            SERVICE,
            partial(indexer_pb2_grpc.add_IndexerServiceServicer_to_server, servicer),
        )
        maintenance.start()
        stack.callback(_stop_maintenance, maintenance)
        limits = SummaryLimits(settings.summary_min_chars, settings.summary_max_tokens)
        summariser = Summariser(writer, embedder, chat, limits)
        summariser.start()
        stack.callback(_stop_summarising, summariser)
        on_serving = report_serving if settings.stop_on_eof else None
        serve_until_stopped(listening, settings.drain_s, stopping, engine.require_store, on_serving)


@contextmanager
def _text_recognition(settings: IndexerSettings) -> Iterator[TextRecognition]:
    """Yields the text recognition; ends its processes afterwards. It starts none in advance."""
    if not has_ocr_extra() or not settings.ocr_max_pages:
        yield NO_RECOGNITION
        return
    pool = ParserPool(
        settings.ocr_processes,
        settings.ocr_memory_bytes,
        settings.ocr_timeout_s,
        max_recognised_pages=settings.ocr_max_pages,
    )
    with closing(pool):
        yield TextRecognition(pool.parse, settings.ocr_max_pages)


def _servicer(
    settings: IndexerSettings,
    writer: Writer,
    embedder: Embedder,
    parsers: ParserPool,
    recognition: TextRecognition,
    stopping: threading.Event,
) -> IndexerServicer:
    defaults = Defaults(
        settings.tree, settings.max_document_bytes, settings.summaries, settings.language
    )
    pipeline = Pipeline(writer, embedder, defaults, parsers.parse, recognition)
    catalog = StoredCatalog(writer, ReplyLimit(settings.max_reply_bytes))
    return IndexerServicer(pipeline, catalog, stopping)


def _stop_maintenance(maintenance: Maintenance) -> None:
    """Stops the maintenance; ends the process at once if a part of the index is being built.

    This function does not wait for the build to finish: the next start of the indexer builds that
    part again in any case.
    """
    if not maintenance.close():
        abandon("a part of the index was still being built; the next start builds it again")


def _stop_summarising(summariser: Summariser) -> None:
    """Stops the summariser; ends the process at once if a summary is still being written.

    This function does not wait for the chat model, which may take minutes. The next start of the
    indexer sends the request again.
    """
    if not summariser.close():
        abandon("summaries were still being written; the next start writes them")
