"""A search as an engine sees it: the request, and the result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hrag.filters import Filter
from hrag.passages.sentence_context import SentenceContext
from hrag.tracing import Stage
from hrag.types import (
    DEFAULT_MERGE_RATIO,
    DEFAULT_TOP_SECTIONS,
    DEFAULT_WINDOW_SENTENCES,
    Aggregation,
    ChosenSection,
    SearchMode,
    SummaryScope,
)

Vector = NDArray[np.float32]
Describe = Callable[[str, str, str, Mapping[str, Any]], bytes]
"""Encodes what all chunks of a document share: its id, title, source and metadata."""

P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True, slots=True)
class FindRequest:
    """What one search wants of a snapshot. The caller has checked every field.

    `vector` is `float32[dimension]` of unit length. `level` is that of the passages, the
    highest one in AUTO_MERGE. `candidates` is how many leaves are looked at first; more are
    while fewer than `limit` passages come out and more leaves exist. A `token_budget` of 0
    is none. In SENTENCE_WINDOW the result is the best `limit` leaves with
    `window_sentences` sentences on either side, instead of passages; `level` is that of
    the leaves then, and scores, budget and joining are left to the caller.
    """

    vector: Vector
    mode: SearchMode
    level: int
    limit: int
    candidates: int
    aggregation: Aggregation = Aggregation.MAX
    min_score: float | None = None
    token_budget: int = 0
    cut_last: bool = False
    merge_adjacent: bool = False
    merge_ratio: float = DEFAULT_MERGE_RATIO
    window_sentences: int = DEFAULT_WINDOW_SENTENCES
    filter: Filter | None = None
    top_sections: int = DEFAULT_TOP_SECTIONS
    summary_scope: SummaryScope = SummaryScope.SECTIONS


@dataclass(frozen=True, slots=True)
class Found(Generic[P_co]):
    """What a search found, best first.

    `considered` is how many leaves were looked at of the `eligible_leaves`. `exact` is True
    if no other eligible leaf is nearer for certain, `exhausted` if the snapshot has nothing
    more to return. `stages` are the names and times of `search`, `climb`, `fetch` and, with
    a filter, `filter`; a stage that was repeated comes again.
    """

    passages: tuple[P_co, ...]
    considered: int
    eligible_leaves: int
    exact: bool
    exhausted: bool
    stages: tuple[Stage, ...]
    contexts: tuple[SentenceContext, ...] = ()
    sections: tuple[ChosenSection, ...] = ()
