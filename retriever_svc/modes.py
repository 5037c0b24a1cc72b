"""What the options of a query mean in each mode: levels, limits and defaults."""

from dataclasses import replace
from typing import TypeVar

from hrag.engine import FindRequest
from hrag.values.collections import CollectionSettings
from hrag.values.limits import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_LIMIT,
    DEFAULT_NEIGHBOUR_BONUS,
    DEFAULT_WINDOW_SENTENCES,
)
from hrag.values.reply_limit import ReplyLimit
from hrag.values.search import (
    Aggregation,
    Retrieval,
    SearchMode,
    SearchQuery,
)
from retriever_svc.query_checks import OF_LEAVES

T = TypeVar("T")


def returned_level(query: SearchQuery, settings: CollectionSettings, default_level: int) -> int:
    """Returns the level of the query's passages; in AUTO_MERGE, it is their highest level.

    STANDARD, SENTENCE_WINDOW and CONTEXT return the embedded level. Otherwise the query's level
    has priority, then the collection's, then the service's. Raises InvalidArgument for a level
    that the collection cannot return.
    """
    tree = settings.tree
    if query.mode_or_default in OF_LEAVES:
        return tree.embedding_level
    if query.return_level is not None:
        tree.check_return_level(query.return_level)
        return query.return_level
    if settings.return_level is not None:
        return settings.return_level
    return max(tree.embedding_level, min(default_level, tree.top_level))


def passage_limit(query: SearchQuery) -> int:
    """Returns the maximum number of passages."""
    return or_default(query.limit, DEFAULT_LIMIT)


def token_budget(query: SearchQuery, reply: ReplyLimit) -> int:
    """Returns the maximum number of tokens of all passages together; 0 means no limit."""
    is_context = query.mode_or_default is SearchMode.CONTEXT
    budget = query.token_budget or (DEFAULT_CONTEXT_TOKENS if is_context else 0)
    # A token has at least one byte. So a budget of one token more than the reply has bytes exceeds
    # the reply already, and a higher budget would change nothing.
    return min(budget, reply.max_bytes + 1)


def neighbour_bonus(query: SearchQuery, retrieval: Retrieval) -> float:
    """Returns the query's bonus, or the default if it has none.

    If passages are leaves, a search without a bonus misses an answer in the leaf next to the one
    that matched. Larger passages contain both leaves. In STANDARD, a search of one source gets no
    bonus, so that its scores stay unchanged.
    """
    if query.neighbour_bonus is not None:
        return query.neighbour_bonus
    mode = query.mode_or_default
    is_fused_leaf = mode is SearchMode.STANDARD and retrieval is Retrieval.HYBRID
    return DEFAULT_NEIGHBOUR_BONUS if mode is SearchMode.CONTEXT or is_fused_leaf else 0.0


def leaves_request(request: FindRequest, leaves: int) -> FindRequest:
    """Returns SENTENCE_WINDOW's request for its best `leaves`.

    The query's limits on scores, tokens and joining concern sentences, so the engine gets none.
    """
    return replace(
        request,
        mode=SearchMode.STANDARD,
        limit=leaves,
        aggregation=Aggregation.MAX,
        min_score=None,
        token_budget=0,
        cut_last=False,
        merge_adjacent=False,
        max_per_document=0,
    )


def or_default(value: T | None, default: T) -> T:
    """Returns the value, or the default if it is None."""
    return default if value is None else value


def window_sentences(query: SearchQuery) -> int:
    """Returns how many sentences a window has on either side of the best one."""
    return or_default(query.window_sentences, DEFAULT_WINDOW_SENTENCES)
