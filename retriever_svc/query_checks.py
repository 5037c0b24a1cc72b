"""Checks a query. Each error names the field, its value and what is allowed."""

import math

import numpy as np

from hrag.engine import Vector
from hrag.values import ids
from hrag.values.collections import CollectionSettings
from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.filters import check_filter
from hrag.values.limits import (
    MAX_CANDIDATES,
    MAX_LIMIT,
    MAX_NEIGHBOUR_BONUS,
    MAX_PER_DOCUMENT,
    MAX_QUERY_BYTES,
    MAX_TOP_SECTIONS,
    MAX_WINDOW_SENTENCES,
)
from hrag.values.search import Retrieval, SearchMode, SearchQuery

OF_LEAVES = (SearchMode.STANDARD, SearchMode.SENTENCE_WINDOW, SearchMode.CONTEXT)


def check_query(query: SearchQuery) -> None:
    """Checks everything that needs no collection. Raises InvalidArgument or TooLarge."""
    ids.check_tenant_id(query.tenant_id)
    ids.check_collection_name(query.collection)
    if query.limit is not None:
        _check_range("limit", query.limit, MAX_LIMIT)
    _check_range("candidates", query.candidates, MAX_CANDIDATES)
    if isinstance(query.query, str):
        _check_text(query.query)
    _check_retrieval(query)
    mode = query.mode_or_default
    if mode in OF_LEAVES and query.return_level is not None:
        raise InvalidArgument(
            f"return_level is {query.return_level}; {mode.name} returns the embedded level, so "
            "leave it unset",
            field="return_level",
        )
    if query.cut_last and not query.token_budget and mode is not SearchMode.CONTEXT:
        raise InvalidArgument(
            "cut_last is set without a token_budget; set that, or leave both unset",
            field="cut_last",
        )
    if query.keep_overlap:
        _check_overlap(query, mode)
    if query.window_sentences is not None:
        _check_window(query.window_sentences, mode)
    if query.merge_ratio is not None:
        _check_merge_ratio(query.merge_ratio, mode)
    _check_summary_first(query)
    if query.filter is not None:
        check_filter(query.filter)
    if query.min_score is not None and not math.isfinite(query.min_score):
        raise InvalidArgument(
            f"min_score is {query.min_score}; it must be a finite number", field="min_score"
        )


def _check_retrieval(query: SearchQuery) -> None:
    """Checks the options that say which sources are searched, and with which weights."""
    retrieval = query.retrieval or (Retrieval.HYBRID if query.text else Retrieval.DENSE)
    if not query.text and retrieval is not Retrieval.DENSE:
        raise InvalidArgument(
            f"retrieval is {retrieval.name} and text is empty; a query by vector alone is DENSE",
            field="retrieval",
        )
    if retrieval is Retrieval.LEXICAL and query.mode_or_default is SearchMode.SENTENCE_WINDOW:
        raise InvalidArgument(
            "retrieval is LEXICAL; SENTENCE_WINDOW compares the vectors of sentences, so use "
            "HYBRID or DENSE",
            field="retrieval",
        )
    for field, value in (("fusion", query.fusion), ("lexical_weight", query.lexical_weight)):
        if value is not None and retrieval is not Retrieval.HYBRID:
            raise InvalidArgument(
                f"{field} is {value}; only HYBRID has one, so leave it unset in {retrieval.name}",
                field=field,
            )
    _check_share("lexical_weight", query.lexical_weight, 1.0)
    _check_share("neighbour_bonus", query.neighbour_bonus, MAX_NEIGHBOUR_BONUS)
    if query.max_per_document:
        _check_range("max_per_document", query.max_per_document, MAX_PER_DOCUMENT)


def _check_share(field: str, value: float | None, limit: float) -> None:
    if value is not None and not 0 <= value <= limit:
        raise InvalidArgument(f"{field} is {value:g}; it must be from 0 to {limit:g}", field=field)


def _check_merge_ratio(ratio: float, mode: SearchMode) -> None:
    if mode is not SearchMode.AUTO_MERGE:
        raise InvalidArgument(
            f"merge_ratio is {ratio:g}; only AUTO_MERGE has one, so leave it unset in {mode.name}",
            field="merge_ratio",
        )
    if not 0 < ratio <= 1:
        raise InvalidArgument(
            f"merge_ratio is {ratio:g}; it must be over 0 and up to 1", field="merge_ratio"
        )


def _check_overlap(query: SearchQuery, mode: SearchMode) -> None:
    joins = "merge_adjacent" if query.merge_adjacent else mode.name
    if query.merge_adjacent or mode in (SearchMode.SENTENCE_WINDOW, SearchMode.CONTEXT):
        raise InvalidArgument(
            f"keep_overlap is set; {joins} joins passages that overlap, so leave it unset",
            field="keep_overlap",
        )


def _check_window(sentences: int, mode: SearchMode) -> None:
    if mode is not SearchMode.SENTENCE_WINDOW:
        raise InvalidArgument(
            f"window_sentences is {sentences}; only SENTENCE_WINDOW has them, so leave it "
            f"unset in {mode.name}",
            field="window_sentences",
        )
    if not 0 <= sentences <= MAX_WINDOW_SENTENCES:
        raise InvalidArgument(
            f"window_sentences is {sentences}; it must be from 0 to {MAX_WINDOW_SENTENCES}",
            field="window_sentences",
        )


def _check_summary_first(query: SearchQuery) -> None:
    options = {"top_sections": query.top_sections, "summary_scope": query.summary_scope}
    for field, value in options.items():
        if value is not None and query.mode_or_default is not SearchMode.SUMMARY_FIRST:
            raise InvalidArgument(
                f"{field} is {value}; only SUMMARY_FIRST has one, so leave it unset in "
                f"{query.mode_or_default.name}",
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


def unit(vector: Vector) -> Vector:
    """Returns the vector scaled to length 1, `float32[n]`.

    Raises InvalidArgument if it has no direction: NaN, infinity or only zeros.
    """
    wide = vector.astype(np.float64)
    norm = math.sqrt((wide * wide).sum())  # `dot` would release the GIL.
    if not math.isfinite(norm):  # Squares of finite float32 numbers cannot overflow a float64.
        raise InvalidArgument(
            "vector holds NaN or infinity; numbers must be finite", field="vector"
        )
    if norm == 0:
        raise InvalidArgument(
            f"vector has no direction: its {len(vector)} numbers are all zero", field="vector"
        )
    return (wide / norm).astype(np.float32)


def check_dimension(vector: Vector, settings: CollectionSettings) -> None:
    """Raises InvalidArgument unless the vector has the collection's dimension."""
    if len(vector) != settings.dimension:
        raise InvalidArgument(
            f"vector has {len(vector)} numbers; the collection's have {settings.dimension}",
            field="vector",
        )
