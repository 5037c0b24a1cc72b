"""The request and the result of a search."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic

from hrag.values.chunks import Chunk, Span
from hrag.values.conversation import StandaloneQuestion
from hrag.values.filters import Filter
from hrag.values.limits import DEFAULT_CANDIDATES, DEFAULT_COLLECTION
from hrag.values.read_report import PageUnit


class SearchMode(StrEnum):
    """The way in which a search builds passages from the matched leaves."""

    SMALL_TO_BIG = "small_to_big"
    STANDARD = "standard"
    AUTO_MERGE = "auto_merge"
    SENTENCE_WINDOW = "sentence_window"
    SUMMARY_FIRST = "summary_first"
    CONTEXT = "context"


class Retrieval(StrEnum):
    """Where a search finds its candidates: by words (LEXICAL), by vectors (DENSE), or by both."""

    HYBRID = "hybrid"
    DENSE = "dense"
    LEXICAL = "lexical"


class FusionMethod(StrEnum):
    """The method by which HYBRID combines the dense score and the lexical score into one score."""

    CONVEX = "convex"
    RECIPROCAL_RANK = "reciprocal_rank"


class SummaryScope(StrEnum):
    """The summaries with which a SUMMARY_FIRST search compares the query in its first step."""

    SECTIONS = "sections"
    DOCUMENTS = "documents"


class SearchPlan(StrEnum):
    """The way in which a search found the nearest leaves: by an exact scan or in the index."""

    SCAN = "scan"
    INDEX = "index"


class Aggregation(StrEnum):
    """The function that computes a passage's score from the scores of its matched children."""

    MAX = "max"
    SUM = "sum"
    MEAN = "mean"
    COUNT = "count"


@dataclass(frozen=True)
class SearchQuery:
    """A search request. `query` is a text, or the vector of a query that is embedded already.

    If `query` is a text and `vector` is set, `vector` is used instead of the text's embedding. In
    other fields, None means the default. The default may depend on the call, the mode, the
    retrieval and the collection.
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
        """The mode of the search; SMALL_TO_BIG if `mode` is None."""
        return self.mode or SearchMode.SMALL_TO_BIG

    @property
    def text(self) -> str:
        """The query's text; empty if the query is only a vector."""
        return self.query if isinstance(self.query, str) else ""


@dataclass(frozen=True, slots=True)
class MatchedChild:
    """A matched leaf inside a passage.

    `span` is the position of the leaf, or of the part of it that the passage has. `lexical_score`
    is the leaf's score in the lexical search; it is None if the search was only by vectors.
    `dense_score` is its score in the vector search; it is None if the search was only by words.
    """

    chunk_id: str
    score: float
    span: Span
    lexical_score: float | None = None
    dense_score: float | None = None


@dataclass(frozen=True, slots=True)
class TermSpan:
    """The position of a query's term in the document's text, in characters."""

    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class MatchedSentence:
    """The sentence of a passage that matches the query best: the place to cite.

    `section_path` is the path of the section that contains the sentence. Page numbers are 0 if the
    document has no pages. The passage's chunk says what the numbers of pages mean.
    `recognised_pages` are the numbers of the pages whose text was recognised in a picture.
    """

    span: Span
    section_path: tuple[str, ...]
    first_page: int
    last_page: int
    recognised_pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that answers a query, with the leaves that matched inside it.

    If several chunks were joined, `merged_chunk_ids` lists them in order of the text. Then `chunk`
    is the best of the joined chunks, except that its content, span, pages and tokens are those of
    all joined chunks together. `lexical_score` is the score of the passage's best leaf in the
    lexical search; it is None if the search was only by vectors. `dense_score` is the score of this
    leaf in the vector search; it is None if the search was only by words. `term_spans` are the
    places where terms of the query occur; these spans are in order and do not overlap.
    `rerank_score` is the reranker's score, which has another scale than `score`. If chunks were
    joined, it is the score of the chunk that the reranker ranked first. It is None if the reranker
    returned no score for the passage.
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
    """A section of a document that a SUMMARY_FIRST search chose.

    `score` is the section's score, of its best leaf, its summary and its document. `section_path`
    is the path of the section's first leaf. The fields on pages have the meaning of the fields of
    `Chunk`.
    """

    document_id: str
    title: str
    summary: str
    score: float
    span: Span
    section_path: tuple[str, ...]
    first_page: int
    last_page: int
    page_unit: PageUnit = PageUnit.PAGE
    recognised_pages: tuple[int, ...] = ()


@dataclass(frozen=True)
class Timings:
    """The duration of each stage of a search, in microseconds."""

    embed_us: int
    search_us: int
    climb_us: int
    fetch_us: int
    total_us: int
    filter_us: int = 0
    rerank_us: int = 0


# `SearchResult` without a parameter means SearchResult[Passage]. Python 3.13 is the first version
# whose `typing` has defaults of type variables, so only type checkers read the default.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P_co = TypeVar("P_co", covariant=True, default=Passage)
else:
    from typing import TypeVar

    P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True)
class SearchResult(Generic[P_co]):
    """The passages that a search returned, best first, and how the search found them.

    Inside the service, the passages may be encoded messages instead of `Passage` values.
    `exhausted` is True if there are no further passages to return. `candidates_considered` is the
    number of leaves that the search examined, without deleted leaves. `eligible_leaves` is the
    number of leaves that pass the filter; without a filter, all leaves pass. `sequence` is the
    sequence number of the tenant's last change in the snapshot that was searched. `plan` is None if
    the service does not report it. `sections` are the sections that SUMMARY_FIRST chose, best
    first.

    `retrieval` says whether words, vectors or both were searched. If HYBRID had to search only one
    of them, `fallback` is the reason; otherwise `fallback` is empty. `reranked` is True if a
    reranker ordered the passages. If a reranker was called but did not order the passages,
    `rerank_failure` is the reason; otherwise `rerank_failure` is empty. `standalone_question` says
    what was searched for in place of a question of a conversation; it is None in all other cases.
    """

    passages: tuple[P_co, ...]
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
    standalone_question: StandaloneQuestion | None = None
