"""Wires the indexer. Only this module names its concrete parts."""

import os
import threading
from contextlib import ExitStack
from functools import partial

from hrag import metrics
from hrag.chat.factory import open_chat
from hrag.config import IndexerSettings
from hrag.embedding.factory import open_embedder
from hrag.engine.embedded.maintenance.worker import Sealer
from hrag.engine.embedded.store import environment as stores
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.rpc import server
from hrag.rpc.metrics_server import serve_metrics
from hrag.rpc.process import abandon, report_serving, serve_until_stopped
from hrag.rpc.protection import open_protection
from hrag.v1 import indexer_pb2, indexer_pb2_grpc
from indexer_svc.catalog import Catalog
from indexer_svc.pipeline import Defaults, Pipeline
from indexer_svc.readings import readings
from indexer_svc.servicer import IndexerServicer
from indexer_svc.summariser import Summariser, SummaryLimits

SERVICE = indexer_pb2.DESCRIPTOR.services_by_name["IndexerService"].full_name


def serve(settings: IndexerSettings, stopping: threading.Event) -> None:
    """Serves until `stopping` is set."""
    os.nice(settings.niceness)  # Of this thread, and so of all that it starts.
    protection = open_protection(settings, settings.address)
    with ExitStack() as closing:
        embedder = open_embedder(settings)
        chat = open_chat(settings)
        store = stores.open_for_writing(settings.data_dir, settings.disk_reserve_bytes)
        closing.callback(store.close)
        sealer = Sealer(store, settings.seal_leaves)
        writer = EmbeddedWriter(store, sealer, quota_of=protection.quota_of)
        shown = metrics.Readings(partial(readings, writer, settings))
        closing.enter_context(serve_metrics(settings.metrics_address, metrics.INSTRUMENTS, shown))
        servicer = IndexerServicer(
            Pipeline(
                writer,
                embedder,
                Defaults(settings.tree, settings.max_document_bytes, settings.summaries),
            ),
            Catalog(writer),
            stopping,
        )
        listening = server.build(
            settings,
            protection,
            settings.address,
            SERVICE,
            partial(indexer_pb2_grpc.add_IndexerServiceServicer_to_server, servicer),
        )
        sealer.start()
        closing.callback(_stop_sealing, sealer)
        limits = SummaryLimits(settings.summary_min_chars, settings.summary_max_tokens)
        summariser = Summariser(writer, embedder, chat, limits)
        summariser.start()
        closing.callback(_stop_summarising, summariser)
        told = report_serving if settings.stop_on_eof else None
        serve_until_stopped(listening, settings.address, settings.drain_s, stopping, told)


def _stop_sealing(sealer: Sealer) -> None:
    """What is being built is worth nothing unfinished, so nobody waits for it."""
    if not sealer.close():
        abandon("a segment was still being written; the next start makes it anew")


def _stop_summarising(summariser: Summariser) -> None:
    """A model may take minutes to answer, and the next start asks it again."""
    if not summariser.close():
        abandon("summaries were still being written; the next start writes them")
