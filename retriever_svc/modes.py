"""Modes: translates a query and the collection's settings into the engine's request."""

from hrag.engine import FindRequest, Vector
from hrag.types import (
    DEFAULT_MERGE_RATIO,
    DEFAULT_TOP_SECTIONS,
    DEFAULT_WINDOW_SENTENCES,
    CollectionSettings,
    SearchMode,
    SearchQuery,
    SummaryScope,
)


def returned_level(query: SearchQuery, settings: CollectionSettings, default_level: int) -> int:
    """Returns the level of the query's passages, the highest one in AUTO_MERGE.

    STANDARD and SENTENCE_WINDOW return the embedded level. Else the query's own level comes
    first, then the collection's, then the service's. Raises InvalidArgument for a level that
    the collection cannot return.
    """
    tree = settings.tree
    if query.mode in (SearchMode.STANDARD, SearchMode.SENTENCE_WINDOW):
        return tree.embedding_level
    if query.return_level is not None:
        tree.check_return_level(query.return_level)
        return query.return_level
    if settings.return_level is not None:
        return settings.return_level
    return max(tree.embedding_level, min(default_level, tree.top_level))


def find_request(query: SearchQuery, vector: Vector, level: int) -> FindRequest:
    """Returns the request for passages at `level`; what the query leaves out has its default."""
    return FindRequest(
        vector=vector,
        mode=query.mode,
        level=level,
        limit=query.limit,
        candidates=query.candidates,
        aggregation=query.aggregation,
        min_score=query.min_score,
        token_budget=query.token_budget,
        cut_last=query.cut_last,
        merge_adjacent=query.merge_adjacent,
        merge_ratio=DEFAULT_MERGE_RATIO if query.merge_ratio is None else query.merge_ratio,
        filter=query.filter,
        top_sections=query.top_sections or DEFAULT_TOP_SECTIONS,
        summary_scope=query.summary_scope or SummaryScope.SECTIONS,
    )


def contexts_request(query: SearchQuery, vector: Vector, level: int, leaves: int) -> FindRequest:
    """Returns SENTENCE_WINDOW's request for the sentence contexts of the best `leaves`.

    Scores, budget and joining concern sentences, so the engine is not asked for them.
    """
    return FindRequest(
        vector=vector,
        mode=query.mode,
        level=level,
        limit=leaves,
        candidates=query.candidates,
        window_sentences=window_sentences(query),
        filter=query.filter,
    )


def window_sentences(query: SearchQuery) -> int:
    """Returns how many sentences a window has on either side of the best one."""
    given = query.window_sentences
    return DEFAULT_WINDOW_SENTENCES if given is None else given
