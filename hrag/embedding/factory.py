"""Creates the embedder that the settings name.

The built-in model and the OpenAI SDK are imported only if they are used, because they take a
second and a hundred megabytes.
"""

import os

import structlog

from hrag.config import CommonSettings
from hrag.embedding import Embedder
from hrag.embedding.coalescer import CoalescingEmbedder
from hrag.embedding.hashing import HashEmbedder
from hrag.embedding.instrumented import InstrumentedEmbedder
from hrag.embedding.none import NoEmbedder
from hrag.endpoint.access import Variable, access
from hrag.types import NO_EMBEDDER


def open_embedder(settings: CommonSettings) -> Embedder:
    """Returns the embedder that HRAG_EMBEDDER names, with metrics.

    Sends no request yet. Raises SettingsError, which names the variable.
    """
    return InstrumentedEmbedder(_create(settings))


def open_query_embedder(settings: CommonSettings) -> Embedder:
    """Returns the embedder for queries, which coalesces concurrent single texts where that helps.

    Raises SettingsError, which names the variable.
    """
    embedder = open_embedder(settings)
    if settings.embedder == "openai":
        # An endpoint may take more requests at once, but each costs the service processor time.
        return CoalescingEmbedder(embedder, 1)
    if settings.embedder == "builtin":
        return CoalescingEmbedder(embedder, os.cpu_count() or 1)
    return embedder  # It takes 10 us; coalescing would cost more.


def _create(settings: CommonSettings) -> Embedder:
    provider, _, argument = settings.embedder.partition(":")
    if provider == NO_EMBEDDER:
        return NoEmbedder()
    if provider == "hash":
        return _hash_embedder(int(argument))
    if provider == "openai":
        return _openai_embedder(settings)
    return _builtin_embedder()


def _builtin_embedder() -> Embedder:
    from hrag.embedding.builtin import BuiltinEmbedder  # noqa: PLC0415  # see above

    return BuiltinEmbedder()


def _hash_embedder(dimension: int) -> Embedder:
    embedder = HashEmbedder(dimension)
    structlog.get_logger().warning(
        "hash_embedder",
        embedder=embedder.name,
        effect="VECTORS CARRY NO MEANING: HRAG_EMBEDDER=hash is for load tests only",
    )
    return embedder


def _openai_embedder(settings: CommonSettings) -> Embedder:
    from hrag.embedding.openai import OpenAIEmbedder  # noqa: PLC0415  # see above

    return OpenAIEmbedder(
        model=settings.openai_model,
        access=access(
            Variable("OPENAI_BASE_URL", settings.openai_base_url),
            Variable("OPENAI_API_KEY", settings.openai_api_key),
            "HRAG_EMBEDDER=openai",
        ),
        dimensions=settings.openai_dimensions,
        timeout_s=settings.openai_timeout_s,
    )
