"""Metrics that are computed at each scrape: the state of the reader and of the caches."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version

from hrag.config import RetrieverSettings
from hrag.engine import Reader
from hrag.models.embedding.cache import CachedQueries
from hrag.observe.metrics import Reading, file_readings


def readings(
    reader: Reader, caches: Mapping[str, CachedQueries], settings: RetrieverSettings
) -> Iterator[Reading]:
    """Yields metrics: the version, the count of threads, and the state of the caches and reader.

    `caches` has the caches of query vectors by name.
    """
    yield Reading("hrag_build_info", 1, {"version": version("hrag")})
    yield Reading("hrag_threads", settings.threads)
    yield from file_readings()
    for name, cached in caches.items():
        for outcome, count in (("hit", cached.hits), ("miss", cached.misses)):
            yield Reading("hrag_cache_lookups_total", count, {"cache": name, "outcome": outcome})
    status = reader.status()
    yield Reading("hrag_reader_lag_seconds", status.lag_s)
    if status.embedded is not None:
        for field, value in asdict(status.embedded).items():
            yield Reading(f"hrag_reader_{field}", value)
