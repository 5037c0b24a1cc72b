"""Metrics that the indexer reads at each scrape: some settings, and the size of the store."""

from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version

from hrag.config import IndexerSettings
from hrag.engine import Writer
from hrag.observe.metrics import Reading, file_readings


def readings(writer: Writer, settings: IndexerSettings) -> Iterator[Reading]:
    """Yields metrics: some settings, and the size of the store.

    Raises StoreUnavailable if the store cannot be read.
    """
    yield Reading("hrag_build_info", 1, {"version": version("hrag")})
    yield Reading("hrag_threads", settings.threads)
    yield from file_readings()
    totals = asdict(writer.totals())
    if embedded := totals.pop("embedded"):
        totals |= embedded
        totals["segment_min_leaves"] = settings.segment_min_leaves
        totals["disk_reserve_bytes"] = settings.disk_reserve_bytes
    for name, value in totals.items():
        yield Reading(f"hrag_store_{name}", value)
