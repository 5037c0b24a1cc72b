"""The request of a search to an engine, and the result of the search."""

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
    """Encodes the fields of passages that an engine cannot encode itself.

    Only engines that return encoded passages use it.
    """

    def document(
        self, document_id: str, title: str, source: str, metadata: Mapping[str, Any]
    ) -> bytes:
        """Returns the encoded fields of hrag.v1.Chunk that all chunks of a document share."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """The parameters by which the scores of the lexical and the dense source become one score.

    `hrag.types.FusionMethod` lists the methods. In CONVEX, a cosine is normalised to
    `(cosine - lowest_cosine) / (1 - lowest_cosine)`, because embedding models differ in the cosine
    of two unrelated texts.
    """

    method: FusionMethod = FusionMethod.CONVEX
    lexical_weight: float = DEFAULT_LEXICAL_WEIGHT
    lowest_cosine: float = -1.0


@dataclass(frozen=True, slots=True)
class FindRequest:
    """The parameters of a search in one snapshot. The caller has checked every field.

    `vector` is `float32[dimension]` of unit length; it is None if `retrieval` is LEXICAL. `text` is
    the text of the query, empty if the query is a vector. A leaf matches only if its text contains
    every string in `required`. `retrieval` only names sources that the collection has. `level` is
    the level of the passages; in AUTO_MERGE it is the highest level that passages may have.

    Each source first returns `candidates` leaves. While these give fewer than `limit` passages and
    more leaves exist, the engine reads more candidates. Passages from later candidates come after
    those from earlier ones.

    If `token_budget` is 0, tokens are not limited; CONTEXT requires a budget. If `max_per_document`
    is 0, the passages per document are not limited. A passage does not repeat text that a better
    passage has, unless `keep_overlap` is set. Modes that join passages do not allow `keep_overlap`.

    In SENTENCE_WINDOW the result contains no passages. It contains the best `limit` leaves, each
    with `window_sentences` sentences on both sides, and `level` is the level of the leaves. The
    caller then applies scores and budget and joins the windows.

    If the passages would exceed `reply`, ReplyTooLarge is raised before they are created.
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
    """The result of a search, best passage first.

    `considered` is the number of leaves that were candidates, out of `eligible_leaves`. `exact` is
    True if the candidates of each source are certainly its best leaves. `exhausted` is True if the
    snapshot has no further passage to return. `stages` has the names and times of the stages
    `search`, `climb`, `fetch` and, with a filter, `filter`. A stage that ran several times occurs
    several times.
    """

    passages: tuple[P_co, ...]
    considered: int
    eligible_leaves: int
    exact: bool
    exhausted: bool
    stages: tuple[Stage, ...]
    contexts: tuple[SentenceContext, ...] = ()
    sections: tuple[ChosenSection, ...] = ()
