"""The options of a query: checks them, and converts them into a request to the engine.

`check_query` rejects options that are not allowed. Each error names the field, its value and what
is allowed. The other functions return what the options mean in each mode, with defaults for the
options that are not set.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from hrag.engine import FindRequest, Fusion, Vector
from hrag.text.analysis.query_syntax import ParsedQuery
from hrag.values import ids
from hrag.values.collections import CollectionSettings
from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.filters import check_filter
from hrag.values.limits import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_LEXICAL_WEIGHT,
    DEFAULT_LIMIT,
    DEFAULT_MERGE_RATIO,
    DEFAULT_NEIGHBOUR_BONUS,
    DEFAULT_WINDOW_SENTENCES,
    MAX_CANDIDATES,
    MAX_LIMIT,
    MAX_NEIGHBOUR_BONUS,
    MAX_PER_DOCUMENT,
    MAX_QUERY_BYTES,
    MAX_TOP_SECTIONS,
    MAX_WINDOW_SENTENCES,
)
from hrag.values.reply_limit import ReplyLimit
from hrag.values.search import (
    FusionMethod,
    Retrieval,
    SearchMode,
    SearchQuery,
    SummaryScope,
)

T = TypeVar("T")

_NO_FUSION = Fusion()  # Only HYBRID fuses scores.
# Only a search that is repeated for a reranker has these two; see `FindRequest`.
_NO_SCORES: Mapping[int, float] = MappingProxyType({})
_LEAST_CONSIDERED = 0

# The modes whose passages are on the embedded level: the level whose chunks have vectors.
_LEAF_MODES = (SearchMode.STANDARD, SearchMode.SENTENCE_WINDOW, SearchMode.CONTEXT)


def check_query(query: SearchQuery) -> None:
    """Checks all options that can be checked without the settings of the collection.

    Raises InvalidArgument or TooLarge for an option that is not allowed.
    """
    ids.check_tenant_id(query.tenant_id)
    ids.check_collection_name(query.collection)
    if query.limit is not None:
        _check_range("limit", query.limit, MAX_LIMIT)
    _check_range("candidates", query.candidates, MAX_CANDIDATES)
    if isinstance(query.query, str):
        _check_text(query.query)
    _check_retrieval(query)
    mode = query.mode_or_default
    if mode in _LEAF_MODES and query.return_level is not None:
        raise InvalidArgument(
            f"return_level is {query.return_level}; {mode.name} returns the embedded level, so "
            "leave it unset",
            field="return_level",
        )
    if query.cut_last and not query.token_budget and mode is not SearchMode.CONTEXT:
        raise InvalidArgument(
            "cut_last is set without a token_budget; set a token_budget, or leave both unset",
            field="cut_last",
        )
    if query.keep_overlap:
        _check_overlap(query, mode)
    if query.window_sentences is not None:
        _check_window(query.window_sentences, mode)
    if query.merge_ratio is not None:
        _check_merge_ratio(query.merge_ratio, mode)
    _check_summary_options(query, mode)
    if query.filter is not None:
        check_filter(query.filter)
    if query.min_score is not None and not math.isfinite(query.min_score):
        raise InvalidArgument(
            f"min_score is {query.min_score}; it must be a finite number", field="min_score"
        )


def _check_retrieval(query: SearchQuery) -> None:
    """Checks the options that choose and score leaves, for example `retrieval` and `fusion`.

    Raises InvalidArgument for an option that is not allowed.
    """
    text = query.text
    retrieval = query.retrieval or (Retrieval.HYBRID if text else Retrieval.DENSE)
    if not text and retrieval is not Retrieval.DENSE:
        raise InvalidArgument(
            f"retrieval is {retrieval.name} and text is empty; without a text it must be DENSE",
            field="retrieval",
        )
    if retrieval is not Retrieval.HYBRID:
        _refuse_fusion(query, retrieval)
    if query.lexical_weight is not None:
        _check_share("lexical_weight", query.lexical_weight, 1.0)
    if query.neighbour_bonus is not None:
        _check_share("neighbour_bonus", query.neighbour_bonus, MAX_NEIGHBOUR_BONUS)
    if query.max_per_document:
        _check_range("max_per_document", query.max_per_document, MAX_PER_DOCUMENT)


def _refuse_fusion(query: SearchQuery, retrieval: Retrieval) -> None:
    """Raises InvalidArgument if the query sets an option that only HYBRID uses."""
    for field, value in (("fusion", query.fusion), ("lexical_weight", query.lexical_weight)):
        if value is not None:
            raise InvalidArgument(
                f"{field} is {value}; only HYBRID uses it, so leave it unset in {retrieval.name}",
                field=field,
            )


def _check_share(field: str, value: float, limit: float) -> None:
    if not 0 <= value <= limit:
        raise InvalidArgument(f"{field} is {value:g}; it must be from 0 to {limit:g}", field=field)


def _check_merge_ratio(ratio: float, mode: SearchMode) -> None:
    if mode is not SearchMode.AUTO_MERGE:
        raise InvalidArgument(
            f"merge_ratio is {ratio:g}; only AUTO_MERGE uses it, so leave it unset in {mode.name}",
            field="merge_ratio",
        )
    if not 0 < ratio <= 1:
        raise InvalidArgument(
            f"merge_ratio is {ratio:g}; it must be greater than 0 and at most 1",
            field="merge_ratio",
        )


def _check_overlap(query: SearchQuery, mode: SearchMode) -> None:
    joins = "merge_adjacent" if query.merge_adjacent else mode.name
    if query.merge_adjacent or mode is SearchMode.CONTEXT:
        raise InvalidArgument(
            f"keep_overlap is set; {joins} joins passages that overlap, so leave keep_overlap "
            "unset",
            field="keep_overlap",
        )


def _check_window(sentences: int, mode: SearchMode) -> None:
    if mode is not SearchMode.SENTENCE_WINDOW:
        raise InvalidArgument(
            f"window_sentences is {sentences}; only SENTENCE_WINDOW uses it, so leave it "
            f"unset in {mode.name}",
            field="window_sentences",
        )
    if not 0 <= sentences <= MAX_WINDOW_SENTENCES:
        raise InvalidArgument(
            f"window_sentences is {sentences}; it must be from 0 to {MAX_WINDOW_SENTENCES}",
            field="window_sentences",
        )


def _check_summary_options(query: SearchQuery, mode: SearchMode) -> None:
    if query.top_sections is None and query.summary_scope is None:
        return
    options = {"top_sections": query.top_sections, "summary_scope": query.summary_scope}
    for field, value in options.items():
        if value is not None and mode is not SearchMode.SUMMARY_FIRST:
            raise InvalidArgument(
                f"{field} is {value}; only SUMMARY_FIRST uses it, so leave it unset in {mode.name}",
                field=field,
            )
    if query.top_sections is not None:
        _check_range("top_sections", query.top_sections, MAX_TOP_SECTIONS)


def _check_range(field: str, value: int, limit: int) -> None:
    if not 1 <= value <= limit:
        raise InvalidArgument(f"{field} is {value}; it must be from 1 to {limit}", field=field)


def _check_text(text: str) -> None:
    size = len(text.encode())
    if size > MAX_QUERY_BYTES:
        raise TooLarge(
            f"text has {size} bytes; at most {MAX_QUERY_BYTES} are allowed", field="text"
        )
    if not text.strip():
        raise InvalidArgument("text is blank; a query must say something", field="text")


def returned_level(query: SearchQuery, settings: CollectionSettings, default_level: int) -> int:
    """Returns the level of the query's passages; in AUTO_MERGE, the highest level of passages.

    In STANDARD, SENTENCE_WINDOW and CONTEXT, this is the embedded level, whose chunks have vectors.
    In other modes, it is the level that the query sets. If the query sets no level, it is the level
    that the collection sets, and if the collection sets no level either, `default_level`. Raises
    InvalidArgument if the collection cannot return the level that the query sets.
    """
    tree = settings.tree
    if query.mode_or_default in _LEAF_MODES:
        return tree.embedding_level
    if query.return_level is not None:
        tree.check_return_level(query.return_level)
        return query.return_level
    if settings.return_level is not None:
        return settings.return_level
    return max(tree.embedding_level, min(default_level, tree.top_level))


def _token_budget(query: SearchQuery, mode: SearchMode, reply: ReplyLimit) -> int:
    """Returns the maximum number of tokens of all passages together; 0 means no limit."""
    budget = query.token_budget
    if not budget:
        if mode is not SearchMode.CONTEXT:
            return 0
        budget = DEFAULT_CONTEXT_TOKENS
    # Each token has at least one byte. So passages with more than `reply.max_bytes` tokens do not
    # fit into the reply, and a budget above `reply.max_bytes + 1` would change nothing.
    return min(budget, reply.max_bytes + 1)


def _neighbour_bonus(query: SearchQuery, mode: SearchMode, retrieval: Retrieval) -> float:
    """Returns the query's neighbour bonus, or the default if the query sets none.

    The bonus is a factor, for example 0.5. It is multiplied by the best score among a leaf and the
    two leaves beside it, and the product is added to the score of the leaf.

    The default is above 0 only in the modes whose passages are leaves: without a bonus, a search
    for leaves misses an answer in the leaf next to the matched leaf. Larger passages contain both
    leaves. In STANDARD and SENTENCE_WINDOW, the default is also 0 if the query searches only words
    or only vectors, so that scores keep their meaning.
    """
    if query.neighbour_bonus is not None:
        return query.neighbour_bonus
    is_fused_leaf = mode in _LEAF_MODES and retrieval is Retrieval.HYBRID
    return DEFAULT_NEIGHBOUR_BONUS if mode is SearchMode.CONTEXT or is_fused_leaf else 0.0


def find_request(
    query: SearchQuery,
    *,
    parsed: ParsedQuery,
    vector: Vector | None,
    retrieval: Retrieval,
    level: int,
    lowest_cosine: float,
    reply: ReplyLimit,
) -> FindRequest:
    """Returns the engine's request for passages at `level`. Unset options get their defaults.

    `retrieval` says whether the engine searches words, vectors or both. `lowest_cosine` is the
    cosine of two unrelated texts (`Embedder.lowest_cosine`).
    """
    mode = query.mode_or_default
    is_context = mode is SearchMode.CONTEXT
    budget = _token_budget(query, mode, reply)
    default_limit = budget if is_context else DEFAULT_LIMIT
    # Arguments by position, in the order of the fields: each search creates a request, and a class
    # that is called with keywords takes twice as long.
    return FindRequest(
        None if retrieval is Retrieval.LEXICAL else vector,
        mode,
        level,
        # In CONTEXT without a limit, only the token budget limits the passages. Each passage has at
        # least one token, so the search never reaches a limit that equals the token budget.
        _or_default(query.limit, default_limit),
        query.candidates,
        parsed.text,
        parsed.required,
        parsed.preferred,
        retrieval,
        _fusion(query, lowest_cosine) if retrieval is Retrieval.HYBRID else _NO_FUSION,
        _neighbour_bonus(query, mode, retrieval),
        query.max_per_document,
        query.aggregation,
        query.min_score,
        budget,
        query.cut_last or is_context,
        query.merge_adjacent or is_context,
        query.keep_overlap,
        _or_default(query.merge_ratio, DEFAULT_MERGE_RATIO),
        query.filter,
        _or_default(query.window_sentences, DEFAULT_WINDOW_SENTENCES),
        query.top_sections or 0,
        query.summary_scope or SummaryScope.SECTIONS,
        _NO_SCORES,
        _LEAST_CONSIDERED,
        reply,
    )


def _fusion(query: SearchQuery, lowest_cosine: float) -> Fusion:
    return Fusion(
        query.fusion or FusionMethod.CONVEX,
        _or_default(query.lexical_weight, DEFAULT_LEXICAL_WEIGHT),
        lowest_cosine,
    )


def _or_default(value: T | None, default: T) -> T:
    """Returns the value, or the default if it is None."""
    return default if value is None else value
