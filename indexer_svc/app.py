"""The composition root of the indexer.

It opens the models, the store, the parsers and the server, connects them, and closes them.
"""

import os
import threading
from contextlib import ExitStack
from functools import partial

import structlog

from hrag.config import IndexerSettings
from hrag.engine import Maintenance, Writer, open_engine
from hrag.models.chat.chat_factory import open_chat
from hrag.models.embedding.embedder_factory import open_embedders
from hrag.models.embedding.embedders import Embedders
from hrag.observe import metrics
from hrag.server.serving import grpc_server
from hrag.server.serving.metrics_access import open_metrics_access
from hrag.server.serving.metrics_server import serve_metrics
from hrag.server.serving.protection import open_protection
from hrag.server.serving.service_process import abandon, report_serving, serve_until_stopped
from hrag.v1 import indexer_pb2, indexer_pb2_grpc
from hrag.values.reply_limit import ReplyLimit
from indexer_svc.commit_gate import CommitGate
from indexer_svc.ingest_pipeline import Defaults, Pipeline
from indexer_svc.page_images import PageImages
from indexer_svc.parsers.parser_pool import ParserPool
from indexer_svc.reembedder import Reembedder
from indexer_svc.scraped_metrics import readings
from indexer_svc.servicer import IndexerServicer
from indexer_svc.stored_catalog import StoredCatalog
from indexer_svc.summariser import Summariser, SummaryLimits
from indexer_svc.text_recognition import TextRecognition, open_text_recognition

_log = structlog.get_logger()

SERVICE = indexer_pb2.DESCRIPTOR.services_by_name["IndexerService"].full_name


def serve(settings: IndexerSettings, stopping: threading.Event) -> None:
    """Serves calls until `stopping` is set.

    Closes everything that it has opened, in the reverse order of opening. Raises HragError or
    SettingsError if the store, a model, a file or a port cannot be opened.
    """
    # A new thread inherits the niceness (scheduling priority) of the thread that starts it. So this
    # niceness applies to all threads that are started below.
    os.nice(settings.niceness)
    protection = open_protection(settings, settings.address)
    metrics_access = open_metrics_access(settings, settings.metrics_address)
    with ExitStack() as stack:
        embedders = open_embedders(settings)
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
        recognition = stack.enter_context(open_text_recognition(settings))
        servicer = _servicer(settings, writer, embedders, parsers, recognition, stopping)
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
        # Each summariser works on the collections of one embedder.
        for embedder in embedders:
            summariser = Summariser(writer, embedder, chat, limits)
            summariser.start()
            stack.callback(_stop_summarising, summariser)
        on_serving = report_serving if settings.stop_on_eof else None
        serve_until_stopped(listening, settings.drain_s, stopping, engine.require_store, on_serving)


def _servicer(
    settings: IndexerSettings,
    writer: Writer,
    embedders: Embedders,
    parsers: ParserPool,
    recognition: TextRecognition,
    stopping: threading.Event,
) -> IndexerServicer:
    defaults = Defaults(
        settings.tree,
        settings.max_document_bytes,
        settings.summaries,
        settings.language,
        settings.keep_originals,
    )
    gate = CommitGate()
    pipeline = Pipeline(
        writer,
        embedders.current,
        defaults,
        parsers.parse,
        recognition,
        previous=embedders.previous,
        gate=gate,
    )
    catalog = StoredCatalog(writer, ReplyLimit(settings.max_reply_bytes))
    reembedder = Reembedder(writer, embedders, gate)
    pages = PageImages(
        catalog,
        parsers.show_page,
        settings.page_image_cache_bytes,
        ReplyLimit(settings.max_reply_bytes),
        recognition,
    )
    return IndexerServicer(pipeline, catalog, reembedder, pages, stopping)


def _stop_maintenance(maintenance: Maintenance) -> None:
    """Stops the background maintenance of the index.

    If a segment of the index is still being built, ends the process at once, without waiting for
    the build. The next start of the indexer builds this segment again.
    """
    if not maintenance.close():
        abandon("a part of the index was still being built; the next start builds it again")


def _stop_summarising(summariser: Summariser) -> None:
    """Stops the summariser.

    If a summary is still being written, ends the process at once, without waiting for the chat
    model, which may take minutes. The next start of the indexer requests the summary again.
    """
    if not summariser.close():
        abandon("summaries were still being written; the next start writes them")
