"""The values hrag speaks in, frozen.

Free of storage, protobuf and gRPC, so that every part can share them. Offsets are
half-open ranges; byte offsets count UTF-8 bytes, character offsets Unicode code points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Generic, TypeVar

from hrag.errors import InvalidArgument
from hrag.filters import Filter
from hrag.quota.quotas import TenantUsage

MAX_LEVELS = 8  # Eight doublings of 256 tokens exceed any model's context.
MIN_CHUNK_TOKENS = 32  # Half of it, snapped, still moves on by a code point: at most 4 tokens.
MAX_CHUNK_TOKENS = 32_768
MAX_OVERLAP_RATIO = 0.5  # Beyond it, chunks of one level overlap more than pairwise.

Item = TypeVar("Item")

MAX_TITLE_BYTES = 1024  # Of a document's title, in UTF-8.
MAX_METADATA_BYTES = 64 * 1024
MAX_PAGES = 100_000
MAX_QUERY_BYTES = 32 * 1024  # The longest input of common embedding models, in bytes.
MAX_LIMIT = 100  # 100 passages of 2,048 tokens fit gRPC's default message of 4 MiB.
DEFAULT_LIMIT = 5
MAX_CANDIDATES = 10_000
MAX_BATCH_SEARCHES = 32
DEFAULT_CANDIDATES = 50
DEFAULT_MERGE_RATIO = 0.5
DEFAULT_WINDOW_SENTENCES = 3
MAX_WINDOW_SENTENCES = 20
DEFAULT_TOP_SECTIONS = 3
MAX_TOP_SECTIONS = 1000  # Their leaves are compared one by one.
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000

DEFAULT_COLLECTION = "default"
PLAIN_TEXT = "text/plain"
MARKDOWN = "text/markdown"
PDF = "application/pdf"


class IngestOutcome(StrEnum):
    """What an ingest did."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class SearchMode(StrEnum):
    """What a search returns."""

    SMALL_TO_BIG = "small_to_big"
    STANDARD = "standard"
    AUTO_MERGE = "auto_merge"
    SENTENCE_WINDOW = "sentence_window"
    SUMMARY_FIRST = "summary_first"


class SummaryScope(StrEnum):
    """Which summaries a SUMMARY_FIRST search compares first."""

    SECTIONS = "sections"
    DOCUMENTS = "documents"


class SummaryUnit(StrEnum):
    """What of a document gets a summary each, beside the whole of it."""

    NONE = "none"
    CHUNK = "chunk"
    PAGE = "page"
    SECTION = "section"


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
class TreeSettings:
    """How a document is cut. The same settings and text give the same tree everywhere."""

    level_sizes: tuple[int, ...] = (256, 512, 1024, 2048)
    overlap_ratio: float = 0.1
    embedding_level: int = 0

    def __post_init__(self) -> None:
        _check_level_sizes(self.level_sizes)
        if not 0.0 <= self.overlap_ratio <= MAX_OVERLAP_RATIO:
            raise InvalidArgument(
                f"overlap_ratio is {self.overlap_ratio}; "
                f"it must be from 0.0 to {MAX_OVERLAP_RATIO}",
                field="overlap_ratio",
            )
        if not 0 <= self.embedding_level <= self.top_level:
            raise InvalidArgument(
                f"embedding_level is {self.embedding_level}; "
                f"it must be from 0 to {self.top_level}, the top level",
                field="embedding_level",
            )

    @property
    def top_level(self) -> int:
        return len(self.level_sizes) - 1

    @property
    def leaf_tokens(self) -> int:
        """Most tokens a leaf can have."""
        return self.level_sizes[self.embedding_level]

    def check_return_level(self, level: int) -> None:
        """Raises InvalidArgument unless a search can return `level`."""
        if not self.embedding_level <= level <= self.top_level:
            raise InvalidArgument(
                f"return_level is {level}; it must be from {self.embedding_level}, "
                f"the embedded level, to {self.top_level}, the top level",
                field="return_level",
            )


def _check_level_sizes(sizes: tuple[int, ...]) -> None:
    shown = ",".join(map(str, sizes))
    if not 1 <= len(sizes) <= MAX_LEVELS:
        raise InvalidArgument(
            f"level_sizes is '{shown}' ({len(sizes)} levels); it must have 1 to {MAX_LEVELS}",
            field="level_sizes",
        )
    if any(not MIN_CHUNK_TOKENS <= size <= MAX_CHUNK_TOKENS for size in sizes):
        raise InvalidArgument(
            f"level_sizes is '{shown}'; each size must be from "
            f"{MIN_CHUNK_TOKENS} to {MAX_CHUNK_TOKENS} tokens",
            field="level_sizes",
        )
    if any(small >= big for small, big in pairwise(sizes)):
        raise InvalidArgument(
            f"level_sizes is '{shown}'; sizes must be strictly increasing", field="level_sizes"
        )


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """What is fixed when a collection is created."""

    tree: TreeSettings
    embedder: str
    dimension: int
    return_level: int | None = None
    summaries: SummaryUnit = SummaryUnit.NONE

    def __post_init__(self) -> None:
        if self.return_level is not None:
            self.tree.check_return_level(self.return_level)


@dataclass(frozen=True, slots=True)
class SettingsRequest:
    """What a client asks of a new collection; None takes the indexer's own setting."""

    level_sizes: tuple[int, ...] | None = None
    overlap_ratio: float | None = None
    embedding_level: int | None = None
    return_level: int | None = None
    summaries: SummaryUnit | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of one tenant's documents."""

    tenant_id: str
    name: str
    settings: CollectionSettings
    document_count: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """One page as a client sends it. Number 0 means its place, counted from 1."""

    text: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A document as a client sends it: plain text, a file's bytes, or pages.

    Without a title the indexer takes the one that the document itself gives: in front
    matter, its first heading of level 1 (Markdown), or its metadata (PDF).
    """

    body: str | bytes | tuple[Page, ...]
    document_id: str = ""
    title: str = ""
    source: str = ""
    mime_type: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document as it is stored."""

    document_id: str
    title: str
    source: str
    mime_type: str
    metadata: Mapping[str, Any]
    chunks_per_level: tuple[int, ...]
    token_count: int
    text_bytes: int
    page_count: int
    section_count: int
    sequence: int


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What one ingest did."""

    document_id: str
    outcome: IngestOutcome
    sequence: int
    chunks_per_level: tuple[int, ...]
    token_count: int


@dataclass(frozen=True, slots=True)
class Span:
    """Where a chunk lies in its document's text."""

    byte_start: int
    byte_end: int
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class PageStart:
    """Where a page begins in its document's text."""

    number: int
    char_start: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a document at one level, with what a citation needs.

    `first_page` and `last_page` are 0 where the document has no pages; `page_starts` is
    where those after the first begin.
    """

    chunk_id: str
    document_id: str
    level: int
    index: int
    content: str
    token_count: int
    span: Span
    section_path: tuple[str, ...]
    first_page: int
    last_page: int
    title: str
    source: str
    metadata: Mapping[str, Any]
    page_starts: tuple[PageStart, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkNode:
    """A chunk with its place in the tree."""

    chunk: Chunk
    parent_id: str
    child_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A chunk with its relatives; descendants come level by level."""

    node: ChunkNode
    ancestors: tuple[ChunkNode, ...]
    siblings: tuple[ChunkNode, ...]
    descendants: tuple[ChunkNode, ...]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What a client asks: a text, or a vector that is embedded already."""

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


def check_batch(count: int) -> None:
    """Raises InvalidArgument for no search, and for more than a batch may have."""
    if not 1 <= count <= MAX_BATCH_SEARCHES:
        problem = f"searches has {count} entries; it must have 1 to {MAX_BATCH_SEARCHES}"
        raise InvalidArgument(problem, field="searches")


@dataclass(frozen=True, slots=True)
class MatchedChild:
    """A leaf that matched inside a passage; of SENTENCE_WINDOW, its best sentence."""

    chunk_id: str
    score: float
    span: Span


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that answers a query, with the leaves that matched inside it.

    Where chunks were joined, `merged_chunk_ids` names them in order of the text, and
    `chunk` is the best of them with content, span, pages and tokens of all.
    """

    chunk: Chunk
    score: float
    matched_children: tuple[MatchedChild, ...]
    merged_chunk_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChosenSection:
    """A section of a document that SUMMARY_FIRST searched, for its summary.

    `score` is the summary's. Pages are 0 where there are none; `section_path` is that of
    the section's first leaf.
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
    """How long each stage of a search took, in microseconds."""

    embed_us: int
    search_us: int
    climb_us: int
    fetch_us: int
    total_us: int
    filter_us: int = 0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found, of the leaves that were eligible: a filter's, or all.

    `plan` is None where the service does not say. `sections` are those that SUMMARY_FIRST
    chose, best first.
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


@dataclass(frozen=True, slots=True)
class Segment:
    """One immutable vector index file. `leaf_count` includes deleted leaves."""

    segment_id: int
    leaf_count: int
    size_bytes: int
    covered_sequence: int


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """How much a collection holds and how far its index has come.

    `summary_tokens` is what the chat model has been given and has answered for summaries.
    `tenant` is of all its tenant's collections.
    """

    committed_sequence: int
    sealed_sequence: int
    document_count: int
    chunk_count: int
    leaf_count: int
    tail_leaf_count: int
    token_count: int
    text_bytes: int
    vector_bytes: int
    segments: tuple[Segment, ...]
    summary_count: int = 0
    unsummarised_documents: int = 0
    summary_tokens: int = 0
    tenant: TenantUsage = field(default_factory=TenantUsage)


@dataclass(frozen=True, slots=True)
class StoreTotals:
    """Sums over all collections, and how full the disk is.

    Tails and segments are of leaves and of summaries.
    """

    sequence: int
    collections: int
    documents: int
    leaves: int
    summaries: int
    unsummarised_documents: int
    tail_leaves: int
    largest_tail_leaves: int
    segments: int
    segment_bytes: int
    text_bytes: int
    vector_bytes: int
    file_bytes: int
    disk_free_bytes: int


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """One page of a listing; `next_page_token` is empty after the last."""

    items: tuple[Item, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that the services enforce."""

    document_bytes: int
    metadata_bytes: int
    query_bytes: int
    limit: int
    candidates: int
    levels: int
    concurrent_calls: int
    batch_searches: int
    filter_depth: int
    filter_terms: int
    answer_tokens: int
    concurrent_answers: int


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """How far a retriever has followed the store, and what it has in memory.

    `lag_s` is how long changes have been waiting for the background, 0 when none are; a
    search applies those of its collection itself. `loaded_bytes` is what counts against
    `budget_bytes`. `damaged_segments` are scanned exactly until they are made anew.
    """

    sequence: int
    applied_sequence: int
    lag_s: float
    collections_loaded: int
    loaded_bytes: int
    budget_bytes: int
    damaged_segments: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Version, settings in force, models, limits and state of a retriever.

    Without a chat model its name is empty, and the limits of answers are 0.
    """

    version: str
    embedder: str
    return_level: int
    default_limit: int
    default_candidates: int
    limits: Limits
    reader: ReaderStatus
    chat_model: str
