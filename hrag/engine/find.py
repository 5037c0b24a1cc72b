"""The request that an engine receives for a search, and the result that it returns.

Nobody changes a value that was created. But those that every search creates are not declared as
frozen, here and in the packages of the engines: setting a field of a frozen dataclass takes twenty
times as long as setting a field of another one, and a search sets more than a hundred.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hrag.observe.tracing import Stage
from hrag.values.filters import Filter
from hrag.values.limits import (
    DEFAULT_LEXICAL_WEIGHT,
    DEFAULT_MERGE_RATIO,
    DEFAULT_WINDOW_SENTENCES,
)
from hrag.values.read_report import PageUnit
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.search import (
    Aggregation,
    ChosenSection,
    FusionMethod,
    Passage,
    Retrieval,
    SearchMode,
    SummaryScope,
)

Vector = NDArray[np.float32]
P = TypeVar("P")  # The type of the passages that a search returns. The ResultForm decides it.
P_co = TypeVar("P_co", covariant=True)


@dataclass(slots=True)
class Fusion:
    """How a search combines the BM25 score and the cosine of a leaf into one score.

    `hrag.types.FusionMethod` lists the methods. `lowest_cosine` is the cosine that means no
    similarity; it depends on the embedding model. With the method CONVEX, a cosine is normalised to
    `(cosine - lowest_cosine) / (1 - lowest_cosine)`, so that no similarity becomes 0.
    """

    method: FusionMethod = FusionMethod.CONVEX
    lexical_weight: float = DEFAULT_LEXICAL_WEIGHT
    lowest_cosine: float = -1.0


@dataclass(slots=True)
class FindRequest:
    """The parameters of a search in one snapshot. The caller has checked every field.

    `vector` is `float32[dimension]` of unit length; it is None if `retrieval` is LEXICAL. `text` is
    the text of the query; it is empty if the query is a vector. A leaf matches only if its text
    contains every string in `required`. The terms of the phrases `preferred`, which are parts of
    `text`, have more weight. `retrieval` names only sources (dense or lexical) that the
    collection has. `level` is the level of the passages; in the mode AUTO_MERGE it is the highest
    level that passages may have.

    Each source first returns `candidates` leaves. If these leaves result in fewer than `limit`
    passages, the engine reads more candidates until there are `limit` passages or no more leaves.
    Passages from later candidates come after passages from earlier candidates.

    If `top_sections` is 0, the scores of sections decide how many of them a search by summaries
    chooses.

    If `token_budget` is 0, tokens are not limited; the mode CONTEXT requires a budget. If
    `max_per_document` is 0, the passages per document are not limited. If `keep_overlap` is False,
    a passage does not repeat text that a better passage has. Modes that join passages do not allow
    `keep_overlap`.

    In the mode SENTENCE_WINDOW, each leaf becomes its sentence to cite, with `window_sentences`
    sentences on each side. A leaf without a word of the query remains whole.

    `rerank_scores` has the scores of a reranker for the chunks of an earlier search with the form
    RankedChunks: the keys of the chunks, best chunk first, with their scores. These chunks come
    before all other chunks. The limit, the token budget and the rules of the mode apply to this
    order. A key is ignored if its chunk is not found any more. `least_considered` is the
    `FindResult.considered` of the earlier search. The search examines as many leaves, if there are
    as many, so that it finds the same chunks.

    `reply` is the size limit of the response. If the passages do not fit this limit, the search
    raises ReplyTooLarge before it creates the passages.
    """

    vector: Vector | None
    mode: SearchMode
    level: int
    limit: int
    candidates: int
    text: str = ""
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
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
    filter: Filter | None = None
    window_sentences: int = DEFAULT_WINDOW_SENTENCES
    top_sections: int = 0
    summary_scope: SummaryScope = SummaryScope.SECTIONS
    rerank_scores: Mapping[int, float] = field(default_factory=dict)
    least_considered: int = 0
    reply: ReplyLimit = UNLIMITED


class ResultForm(Generic[P]):
    """The form in which a search returns passages: Values, Encoded, RankedChunks.

    `P` is the type of a passage in this form.
    """


class PassageForm(ResultForm[P], ABC):
    """A form into which each `Passage` that a search has found can be converted.

    The form decides the type of the returned passages. It does not change which passages are found.
    """

    @abstractmethod
    def from_value(self, passage: Passage) -> P:
        """Converts a passage into this form."""


@dataclass(frozen=True, slots=True)
class Values(PassageForm[Passage]):
    """Each passage is returned as a `hrag.values.search.Passage`."""

    def from_value(self, passage: Passage) -> Passage:
        """Returns `passage` unchanged."""
        return passage


class PassageFields(Protocol):
    """Encodes those fields of a passage that an engine cannot encode itself.

    A search that returns encoded passages passes such an object to the engine, as `Encoded.fields`.
    """

    def document(
        self,
        document_id: str,
        title: str,
        source: str,
        metadata: Mapping[str, Any],
        page_unit: PageUnit | None,
    ) -> bytes:
        """Encodes the fields of hrag.v1.Chunk that are equal in all chunks of a document.

        `page_unit` is None if the document has no pages.
        """


@dataclass(frozen=True, slots=True)
class Encoded(PassageForm[bytes]):
    """Each passage is returned as an encoded hrag.v1.SearchResponse with only this passage.

    An engine has two ways to create the bytes. It may encode a passage itself, without creating a
    Passage, which is faster; for the fields that it cannot encode, it then calls `fields`. Or it
    creates a Passage and calls `encode`.
    """

    fields: PassageFields
    encode: Callable[[Passage], bytes]

    def from_value(self, passage: Passage) -> bytes:
        """Returns the passage as an encoded hrag.v1.SearchResponse."""
        return self.encode(passage)


@dataclass(frozen=True, slots=True)
class RankedChunk:
    """A passage that is a single chunk, and the key of the chunk.

    `key` identifies the chunk in a further search with the same mode and candidates
    (`FindRequest.rerank_scores`). Another version of the chunk's document has other keys.
    """

    key: int
    passage: Passage


@dataclass(frozen=True, slots=True)
class RankedChunks(ResultForm[RankedChunk]):
    """Each passage is returned as a RankedChunk.

    The request must allow overlap (`keep_overlap`), and must neither join nor cut passages.
    """


VALUES = Values()


@dataclass(slots=True)
class FindResult(Generic[P_co]):
    """The result of a search, best passage first.

    The form of the search decides the type of the passages. `eligible_leaves` is the count of
    leaves that pass the filter. `considered` is the count of leaves that were candidates.
    `exact` is True if the candidates of each source (dense or lexical) are certainly the best
    leaves of that source. `exhausted` is True if the snapshot has no further passage to return.
    `stages` has the names and durations of the stages `search`, `climb`, `fetch` and, with a
    filter, `filter`. A stage that ran several times occurs several times.
    """

    passages: tuple[P_co, ...]
    considered: int
    eligible_leaves: int
    exact: bool
    exhausted: bool
    stages: tuple[Stage, ...]
    sections: tuple[ChosenSection, ...] = ()
