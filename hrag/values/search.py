"""Searches and what they find."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hrag.values.chunks import Chunk, Span
from hrag.values.filters import Filter
from hrag.values.limits import DEFAULT_CANDIDATES, DEFAULT_COLLECTION


class SearchMode(StrEnum):
    """How a search makes passages from the leaves that it finds."""

    SMALL_TO_BIG = "small_to_big"
    STANDARD = "standard"
    AUTO_MERGE = "auto_merge"
    SENTENCE_WINDOW = "sentence_window"
    SUMMARY_FIRST = "summary_first"
    CONTEXT = "context"


class Retrieval(StrEnum):
    """Which sources a search takes its candidates from."""

    HYBRID = "hybrid"
    DENSE = "dense"
    LEXICAL = "lexical"


class FusionMethod(StrEnum):
    """How HYBRID makes one score of both sources'."""

    CONVEX = "convex"
    RECIPROCAL_RANK = "reciprocal_rank"


class SummaryScope(StrEnum):
    """Which summaries a SUMMARY_FIRST search compares first."""

    SECTIONS = "sections"
    DOCUMENTS = "documents"


class SearchPlan(StrEnum):
    """How a search found the nearest leaves."""

    SCAN = "scan"
    INDEX = "index"


class Aggregation(StrEnum):
    """How a passage's score comes from its matched children's."""

    MAX = "max"
    SUM = "sum"
    MEAN = "mean"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search request: a text, or a vector that is already embedded.

    With a text, `vector` is used in place of the text's own vector. None takes the default,
    which may depend on the call, mode, retrieval and collection.
    """

    tenant_id: str
    query: str | Sequence[float]
    collection: str = DEFAULT_COLLECTION
    mode: SearchMode | None = None
    limit: int | None = None
    return_level: int | None = None
    candidates: int = DEFAULT_CANDIDATES
    aggregation: Aggregation = Aggregation.MAX
    token_budget: int = 0
    min_sequence: int = 0
    merge_ratio: float | None = None
    merge_adjacent: bool = False
    keep_overlap: bool = False
    min_score: float | None = None
    filter: Filter | None = None
    window_sentences: int | None = None
    cut_last: bool = False
    top_sections: int | None = None
    summary_scope: SummaryScope | None = None
    vector: Sequence[float] | None = None
    retrieval: Retrieval | None = None
    fusion: FusionMethod | None = None
    lexical_weight: float | None = None
    neighbour_bonus: float | None = None
    max_per_document: int = 0
    rerank: bool | None = None

    @property
    def mode_or_default(self) -> SearchMode:
        """The mode, SMALL_TO_BIG if it is None."""
        return self.mode or SearchMode.SMALL_TO_BIG

    @property
    def text(self) -> str:
        """The query's text; empty if it is a vector alone."""
        return self.query if isinstance(self.query, str) else ""


@dataclass(frozen=True, slots=True)
class MatchedChild:
    """A leaf that matched inside a passage; in SENTENCE_WINDOW, its best sentence.

    `lexical_score` and `dense_score` are None if the source was not searched.
    """

    chunk_id: str
    score: float
    span: Span
    lexical_score: float | None = None
    dense_score: float | None = None


@dataclass(frozen=True, slots=True)
class TermSpan:
    """Where a term of the query occurs in the document's text, in characters."""

    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class MatchedSentence:
    """The sentence of a passage that matches the query best: the place to cite.

    `section_path` is that of the section it is in. Pages are 0 if the document has none.
    """

    span: Span
    section_path: tuple[str, ...]
    first_page: int
    last_page: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that answers a query, with the leaves that matched inside it.

    If chunks were joined, `merged_chunk_ids` names them in order of the text, and `chunk`
    is the best of them with content, span, pages and tokens of all. `lexical_score` and
    `dense_score` are those of its best leaf, None if the source was not searched.
    `term_spans` are in order and do not overlap. `rerank_score` is the reranker's, on a scale
    of its own; None if it gave none.
    """

    chunk: Chunk
    score: float
    matched_children: tuple[MatchedChild, ...]
    merged_chunk_ids: tuple[str, ...] = ()
    lexical_score: float | None = None
    dense_score: float | None = None
    term_spans: tuple[TermSpan, ...] = ()
    matched_sentence: MatchedSentence | None = None
    rerank_score: float | None = None


@dataclass(frozen=True, slots=True)
class ChosenSection:
    """A section of a document that SUMMARY_FIRST chose by its summary.

    `score` is the summary's. Pages are 0 if the document has none; `section_path` is that
    of the section's first leaf.
    """

    document_id: str
    title: str
    summary: str
    score: float
    span: Span
    section_path: tuple[str, ...]
    first_page: int
    last_page: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Duration of each stage of a search, in microseconds."""

    embed_us: int
    search_us: int
    climb_us: int
    fetch_us: int
    total_us: int
    filter_us: int = 0
    rerank_us: int = 0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The passages that a search found, best first.

    `eligible_leaves` counts all leaves or those that pass the filter. `sequence` is the
    tenant's last change in the snapshot. `plan` is None if the service does not report it.
    `sections` are those that SUMMARY_FIRST chose, best first. `retrieval` is what was done;
    where that is less than what was asked for, `fallback` says why. `reranked` is True if a
    reranker ordered the passages; `rerank_failure` says why not if one was asked, else it is
    empty.
    """

    passages: tuple[Passage, ...]
    mode: SearchMode
    matched_at_level: int
    returned_at_level: int
    candidates_considered: int
    exhausted: bool
    sequence: int
    timings: Timings
    plan: SearchPlan | None
    eligible_leaves: int
    sections: tuple[ChosenSection, ...] = ()
    retrieval: Retrieval = Retrieval.DENSE
    fallback: str = ""
    reranked: bool = False
    rerank_failure: str = ""
