"""Searches and what they find."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hrag.filters import Filter
from hrag.types.chunks import Chunk, Span
from hrag.types.limits import DEFAULT_CANDIDATES, DEFAULT_COLLECTION, DEFAULT_LIMIT


class SearchMode(StrEnum):
    """How a search makes passages from the leaves that it finds."""

    SMALL_TO_BIG = "small_to_big"
    STANDARD = "standard"
    AUTO_MERGE = "auto_merge"
    SENTENCE_WINDOW = "sentence_window"
    SUMMARY_FIRST = "summary_first"


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
    """A search request: a text, or a vector that is already embedded."""

    tenant_id: str
    query: str | Sequence[float]
    collection: str = DEFAULT_COLLECTION
    mode: SearchMode = SearchMode.SMALL_TO_BIG
    limit: int = DEFAULT_LIMIT
    return_level: int | None = None
    candidates: int = DEFAULT_CANDIDATES
    aggregation: Aggregation = Aggregation.MAX
    token_budget: int = 0
    min_sequence: int = 0
    merge_ratio: float | None = None
    merge_adjacent: bool = False
    min_score: float | None = None
    filter: Filter | None = None
    window_sentences: int | None = None
    cut_last: bool = False
    top_sections: int | None = None
    summary_scope: SummaryScope | None = None


@dataclass(frozen=True, slots=True)
class MatchedChild:
    """A leaf that matched inside a passage; in SENTENCE_WINDOW, its best sentence."""

    chunk_id: str
    score: float
    span: Span


@dataclass(frozen=True, slots=True)
class MatchedSentence:
    """The sentence that a citation of a passage points to, with its section and pages.

    `span` begins and ends with a visible character. `section_path` names the innermost
    section that holds the sentence, outermost title first. Pages are 0 without pages.
    """

    span: Span
    section_path: tuple[str, ...]
    first_page: int
    last_page: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that answers a query, with the leaves that matched inside it.

    If chunks were joined, `merged_chunk_ids` names them in order of the text, and `chunk`
    is the best of them with content, span, pages and tokens of all.
    """

    chunk: Chunk
    score: float
    matched_children: tuple[MatchedChild, ...]
    merged_chunk_ids: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The passages that a search found, best first.

    `eligible_leaves` counts all leaves or those that pass the filter. `sequence` is the
    tenant's last change in the snapshot. `plan` is None if the service does not report it.
    `sections` are those that SUMMARY_FIRST chose, best first.
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
