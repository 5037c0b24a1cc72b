"""A search as an engine sees it: the request, and the result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hrag.observe.tracing import Stage
from hrag.passages.sentence_context import SentenceContext
from hrag.values.filters import Filter
from hrag.values.limits import (
    DEFAULT_LEXICAL_WEIGHT,
    DEFAULT_MERGE_RATIO,
    DEFAULT_TOP_SECTIONS,
    DEFAULT_WINDOW_SENTENCES,
)
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.search import (
    Aggregation,
    ChosenSection,
    FusionMethod,
    Retrieval,
    SearchMode,
    SummaryScope,
)

Vector = NDArray[np.float32]
P_co = TypeVar("P_co", covariant=True)


class PassageFields(Protocol):
    """Encodes the part of passages that an engine which encodes does not know itself."""

    def document(
        self, document_id: str, title: str, source: str, metadata: Mapping[str, Any]
    ) -> bytes:
        """Returns the fields of hrag.v1.Chunk that all chunks of a document share."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """How the scores of both sources become one, see `hrag.types.FusionMethod`.

    A cosine counts as (cosine - lowest_cosine) / (1 - lowest_cosine): models differ in how
    small the cosine of texts that have nothing in common is.
    """

    method: FusionMethod = FusionMethod.CONVEX
    lexical_weight: float = DEFAULT_LEXICAL_WEIGHT
    lowest_cosine: float = -1.0


@dataclass(frozen=True, slots=True)
class FindRequest:
    """What one search wants of a snapshot. The caller has checked every field.

    `vector` is `float32[dimension]` of unit length, None in LEXICAL; `text` is that of the
    query, empty if it has none, and every part of `required` must occur in a leaf exactly.
    `retrieval` is one that the collection has the sources for. `level` is that of the
    passages, the highest one in AUTO_MERGE. `candidates` is how many leaves are taken from
    each source first; more are while fewer than `limit` passages come out and more leaves
    exist, and their passages come after those of the first. A `token_budget` of 0 is none,
    which CONTEXT does not allow; a `max_per_document` of 0 is none. Passages are without text
    that better ones have, unless `keep_overlap` is set, which modes that join do not allow. In
    SENTENCE_WINDOW the result is the best `limit` leaves with `window_sentences` sentences on
    either side, instead of passages; `level` is that of the leaves then, and scores, budget and
    joining are left to the caller. Passages that take more than `reply` allows are not made: that
    raises ReplyTooLarge.
    """

    vector: Vector | None
    mode: SearchMode
    level: int
    limit: int
    candidates: int
    text: str = ""
    required: tuple[str, ...] = ()
    retrieval: Retrieval = Retrieval.DENSE
    fusion: Fusion = field(default_factory=Fusion)
    neighbour_bonus: float = 0.0
    max_per_document: int = 0
    aggregation: Aggregation = Aggregation.MAX
    min_score: float | None = None
    token_budget: int = 0
    cut_last: bool = False
    merge_adjacent: bool = False
    keep_overlap: bool = False
    merge_ratio: float = DEFAULT_MERGE_RATIO
    window_sentences: int = DEFAULT_WINDOW_SENTENCES
    filter: Filter | None = None
    top_sections: int = DEFAULT_TOP_SECTIONS
    summary_scope: SummaryScope = SummaryScope.SECTIONS
    reply: ReplyLimit = UNLIMITED


@dataclass(frozen=True, slots=True)
class Found(Generic[P_co]):
    """What a search found, best first.

    `considered` is how many leaves were looked at of the `eligible_leaves`. `exact` is True
    if each source's candidates are its best for certain, `exhausted` if the snapshot has
    nothing more to return. `stages` are the names and times of `search`, `climb`, `fetch` and, with
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
