"""Translates a query and its collection's settings into the engine's request."""

from dataclasses import replace
from typing import TypeVar

from hrag.engine import FindRequest, Fusion
from hrag.values.collections import CollectionSettings
from hrag.values.limits import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_LEXICAL_WEIGHT,
    DEFAULT_LIMIT,
    DEFAULT_MERGE_RATIO,
    DEFAULT_NEIGHBOUR_BONUS,
    DEFAULT_TOP_SECTIONS,
    DEFAULT_WINDOW_SENTENCES,
)
from hrag.values.reply_limit import ReplyLimit
from hrag.values.search import (
    Aggregation,
    FusionMethod,
    Retrieval,
    SearchMode,
    SearchQuery,
    SummaryScope,
)
from retriever_svc.prepared_query import EmbeddedQuery
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


def find_request(
    embedded: EmbeddedQuery,
    retrieval: Retrieval,
    level: int,
    lowest_cosine: float,
    reply: ReplyLimit,
) -> FindRequest:
    """Returns the request for passages at `level`. Unset fields of the query get defaults."""
    query = embedded.prepared.query
    is_context = query.mode_or_default is SearchMode.CONTEXT
    budget = query.token_budget or (DEFAULT_CONTEXT_TOKENS if is_context else 0)
    # A token has at least one byte. So a budget of one token more than the reply has bytes exceeds
    # the reply already, and a higher budget would change nothing.
    budget = min(budget, reply.max_bytes + 1)
    return FindRequest(
        vector=None if retrieval is Retrieval.LEXICAL else embedded.vector,
        mode=query.mode_or_default,
        level=level,
        # A passage has at least one token, so in CONTEXT the budget is never below the number of
        # passages, and this limit has no effect.
        limit=_or_default(query.limit, budget if is_context else DEFAULT_LIMIT),
        candidates=query.candidates,
        text=embedded.prepared.text,
        required=embedded.prepared.required,
        retrieval=retrieval,
        fusion=Fusion(
            query.fusion or FusionMethod.CONVEX,
            _or_default(query.lexical_weight, DEFAULT_LEXICAL_WEIGHT),
            lowest_cosine,
        ),
        neighbour_bonus=_or_default(query.neighbour_bonus, _neighbour_bonus(query, retrieval)),
        max_per_document=query.max_per_document,
        aggregation=query.aggregation,
        min_score=query.min_score,
        token_budget=budget,
        cut_last=query.cut_last or is_context,
        merge_adjacent=query.merge_adjacent or is_context,
        keep_overlap=query.keep_overlap,
        merge_ratio=_or_default(query.merge_ratio, DEFAULT_MERGE_RATIO),
        filter=query.filter,
        top_sections=query.top_sections or DEFAULT_TOP_SECTIONS,
        summary_scope=query.summary_scope or SummaryScope.SECTIONS,
        reply=reply,
    )


def _neighbour_bonus(query: SearchQuery, retrieval: Retrieval) -> float:
    """Returns the default bonus.

    If passages are leaves, a search without a bonus misses an answer in the leaf next to the one
    that matched. Larger passages contain both leaves. In STANDARD, a search of one source gets no
    bonus, so that its scores stay unchanged.
    """
    mode = query.mode_or_default
    is_fused_leaf = mode is SearchMode.STANDARD and retrieval is Retrieval.HYBRID
    return DEFAULT_NEIGHBOUR_BONUS if mode is SearchMode.CONTEXT or is_fused_leaf else 0.0


def contexts_request(request: FindRequest, leaves: int, sentences: int) -> FindRequest:
    """Returns SENTENCE_WINDOW's request for the contexts of the best `leaves`.

    The query's limits on scores, tokens and joining concern sentences, so the engine gets none.
    """
    return replace(
        request,
        limit=leaves,
        window_sentences=sentences,
        aggregation=Aggregation.MAX,
        min_score=None,
        token_budget=0,
        cut_last=False,
        merge_adjacent=False,
        max_per_document=0,
    )


def _or_default(value: T | None, default: T) -> T:
    return default if value is None else value


def window_sentences(query: SearchQuery) -> int:
    """Returns how many sentences a window has on either side of the best one."""
    sentences = query.window_sentences
    return DEFAULT_WINDOW_SENTENCES if sentences is None else sentences
