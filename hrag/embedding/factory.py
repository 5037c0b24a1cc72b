"""From settings to an embedder.

The model and the OpenAI SDK are imported only by those who ask for them: they cost a second
and a hundred megabytes.
"""

import os

import structlog

from hrag.config import CommonSettings
from hrag.embedding import Embedder
from hrag.embedding.coalescer import Together
from hrag.embedding.hashing import HashEmbedder
from hrag.embedding.instrumented import MeteredEmbedder
from hrag.endpoint.access import Variable, access


def open_embedder(settings: CommonSettings) -> Embedder:
    """Returns the embedder that HRAG_EMBEDDER names, ready for use.

    `openai` is not contacted yet. Raises SettingsError, which names the variable.
    """
    return MeteredEmbedder(_opened(settings))


def open_query_embedder(settings: CommonSettings) -> Embedder:
    """The same, for callers who bring a text each: where that helps, they share requests."""
    embedder = open_embedder(settings)
    if settings.embedder == "openai":
        return Together(embedder, 1)  # It may have room for more, but a request is dear to us.
    if settings.embedder == "builtin":
        return Together(embedder, os.cpu_count() or 1)
    return embedder  # A hash takes 10 us.


def _opened(settings: CommonSettings) -> Embedder:
    provider, _, argument = settings.embedder.partition(":")
    if provider == "hash":
        return _open_hash(int(argument))
    if provider == "openai":
        return _open_openai(settings)
    return _open_builtin()


def _open_builtin() -> Embedder:
    from hrag.embedding.builtin import BuiltinEmbedder  # noqa: PLC0415  # see above

    return BuiltinEmbedder()


def _open_hash(dimension: int) -> Embedder:
    embedder = HashEmbedder(dimension)
    structlog.get_logger().warning(
        "VECTORS CARRY NO MEANING: HRAG_EMBEDDER=hash is for load tests only",
        embedder=embedder.name,
    )
    return embedder


def _open_openai(settings: CommonSettings) -> Embedder:
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
