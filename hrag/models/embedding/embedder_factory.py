"""Creates the embedder that the settings name.

Models and the OpenAI SDK are imported only if they are used. Loading one of them may need a second
and a hundred megabytes, and an optional model may not be installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from hrag.config import E5_SMALL, CommonSettings, SettingsError
from hrag.models.embedding import Embedder
from hrag.models.embedding.coalescer import CoalescingEmbedder
from hrag.models.embedding.embedders import Embedders
from hrag.models.embedding.hashing import HashEmbedder
from hrag.models.embedding.instrumented_embedder import InstrumentedEmbedder
from hrag.models.embedding.none import NoEmbedder
from hrag.models.endpoint.endpoint_access import Variable, access
from hrag.values.collections import NO_EMBEDDER


def open_embedder(settings: CommonSettings) -> Embedder:
    """Returns the embedder that HRAG_EMBEDDER names, with metrics.

    Sends no request. If a setting is invalid, raises SettingsError, which names the environment
    variable.
    """
    return InstrumentedEmbedder(_create(settings))


def open_embedders(settings: CommonSettings) -> Embedders:
    """Returns the current embedder, and the previous one if HRAG_PREVIOUS_EMBEDDER names one.

    Sends no request. If a setting is invalid, raises SettingsError.
    """
    current, previous = open_embedder(settings), settings.previous
    embedders = Embedders(current, None if previous is None else open_embedder(previous))
    _check_names(embedder.name for embedder in embedders)
    return embedders


def _check_names(names: Iterable[str]) -> None:
    name, *others = names
    if name in others:
        raise SettingsError(
            f"HRAG_EMBEDDER and HRAG_PREVIOUS_EMBEDDER both name the embedder {name}; "
            "HRAG_PREVIOUS_EMBEDDER must name another one, or be empty"
        )


@dataclass(frozen=True, slots=True)
class QueryEmbedders:
    """The embedders of a search: one for queries, one for the sentences of passages.

    The citations of answers need the vectors of sentences. Both embedders have the same model. If
    the model embeds queries and passages in the same way, both embedders are the same object.
    """

    queries: Embedder
    passages: Embedder


def open_search_embedders(settings: CommonSettings) -> list[QueryEmbedders]:
    """Returns the embedders of searches: of the current model, then of the previous one, if any.

    Raises the errors of `open_embedders`.
    """
    embedders = [open_query_embedders(settings)]
    if settings.previous is not None:
        embedders.append(open_query_embedders(settings.previous))
    _check_names(pair.queries.name for pair in embedders)
    return embedders


def open_query_embedders(settings: CommonSettings) -> QueryEmbedders:
    """Returns the embedders of searches with the model that HRAG_EMBEDDER names.

    For an endpoint, concurrent calls for single texts are coalesced into one request. If a setting
    is invalid, raises SettingsError, which names the environment variable.
    """
    # e5-small embeds queries and passages differently. Concurrent texts are not coalesced, because
    # e5-small needs as long for several texts together as for the same texts one after another.
    if settings.embedder == E5_SMALL:
        both = _e5_embedders()
        return QueryEmbedders(
            InstrumentedEmbedder(both.queries), InstrumentedEmbedder(both.passages)
        )
    embedder = open_embedder(settings)
    if settings.embedder == "openai":
        # The endpoint is treated as busy while one request is running. It may accept more requests
        # at the same time, but each request costs this service processor time.
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
        return _e5_embedders().passages
    return _builtin_embedder()


def _builtin_embedder() -> Embedder:
    from hrag.models.embedding.builtin import BuiltinEmbedder  # noqa: PLC0415  # See the module's docstring.

    return BuiltinEmbedder()


def _e5_embedders() -> QueryEmbedders:
    from hrag.models.embedding.e5 import PASSAGE, QUERY, E5Embedder  # noqa: PLC0415  # See the module's docstring.
    from hrag.models.embedding.e5_weights import load  # noqa: PLC0415

    model = load()
    return QueryEmbedders(E5Embedder(model, QUERY), E5Embedder(model, PASSAGE))


def _hash_embedder(dimension: int) -> Embedder:
    embedder = HashEmbedder(dimension)
    structlog.get_logger().warning(
        "hash_embedder",
        embedder=embedder.name,
        effect="VECTORS CARRY NO MEANING: HRAG_EMBEDDER=hash is for load tests only",
    )
    return embedder


def _openai_embedder(settings: CommonSettings) -> Embedder:
    from hrag.models.embedding.openai_embedder import OpenAIEmbedder  # noqa: PLC0415  # See the module's docstring.

    return OpenAIEmbedder(
        model=settings.openai_model,
        access=access(
            Variable("OPENAI_BASE_URL", settings.openai_base_url),
            Variable("OPENAI_API_KEY", settings.openai_api_key),
            "HRAG_EMBEDDER=openai",
        ),
        dimensions=settings.openai_dimensions,
        timeout_s=settings.openai_timeout_s,
        max_texts=settings.openai_request_texts,
        max_bytes=settings.openai_request_bytes,
    )
