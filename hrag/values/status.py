"""The values that the services report about themselves and about the store."""

from dataclasses import dataclass, field, replace

from hrag.values.quotas import TenantUsage


@dataclass(frozen=True, slots=True)
class Segment:
    """An immutable set of index files of the embedded engine.

    Segment ids are assigned over all tenants; `segment_id` is 0 if the caller may not see it.
    `leaf_count` includes deleted leaves. `covered_sequence` is the sequence number of the tenant's
    last change that the segment covers.
    """

    segment_id: int
    leaf_count: int
    size_bytes: int
    covered_sequence: int


@dataclass(frozen=True, slots=True)
class EmbeddedIndexStatus:
    """How much of a collection the segments and the tail of the embedded engine contain.

    `sealed_sequence` is the sequence number of the tenant's last change that segments cover. Later
    changes are in the tail; they have added `tail_leaf_count` leaves. Each search compares the
    query with every leaf of the tail.
    """

    sealed_sequence: int
    tail_leaf_count: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The size and the state of a collection.

    `committed_sequence` is the sequence number of the collection's last change. `summary_tokens`
    is the number of tokens that the chat model has read and written for summaries. `tenant` is the
    usage of all collections of the tenant. `embedded` is None if the store is not of the embedded
    engine.
    """

    committed_sequence: int
    document_count: int
    chunk_count: int
    leaf_count: int
    token_count: int
    text_bytes: int
    vector_bytes: int
    summary_count: int = 0
    unsummarised_documents: int = 0
    summary_tokens: int = 0
    tenant: TenantUsage = field(default_factory=TenantUsage)
    embedded: EmbeddedIndexStatus | None = None

    def without_store_wide(self) -> "IndexStatus":
        """Returns the status with all segment ids set to 0.

        Segment ids count the segments of all tenants, and a tenant may not learn of other tenants.
        """
        if self.embedded is None:
            return self
        segments = tuple(replace(segment, segment_id=0) for segment in self.embedded.segments)
        return replace(self, embedded=replace(self.embedded, segments=segments))


@dataclass(frozen=True, slots=True)
class EmbeddedStoreTotals:
    """The sizes of the embedded engine's index and files.

    `sequence` is the sequence number of the store's last commit, over all tenants. The values of
    tails and segments include the tails and segments that index summaries.
    `file_bytes` is the size of LMDB's file, and `disk_free_bytes` is the free space on its disk.
    """

    sequence: int
    tail_leaves: int
    largest_tail_leaves: int
    segments: int
    segment_bytes: int
    file_bytes: int
    disk_free_bytes: int


@dataclass(frozen=True, slots=True)
class StoreTotals:
    """Sums over all collections of all tenants.

    `embedded` is None if the store is not of the embedded engine.
    """

    collections: int
    documents: int
    leaves: int
    summaries: int
    unsummarised_documents: int
    text_bytes: int
    vector_bytes: int
    embedded: EmbeddedStoreTotals | None = None


@dataclass(frozen=True, slots=True)
class EmbeddedReaderStatus:
    """The progress and the memory of a reader that loads the changes of the embedded store.

    `sequence` is the sequence number of the store's last commit, over all tenants.
    `applied_sequence` is the sequence number of the last commit that every loaded collection
    contains. `loaded_bytes` is the memory in use, out of `budget_bytes`. `damaged_segments` is the
    number of segments with a damaged file that the indexer has not replaced yet. Their leaves are
    scanned exactly, or vectors that cannot be read are read from LMDB.
    """

    sequence: int
    applied_sequence: int
    collections_loaded: int
    loaded_bytes: int
    budget_bytes: int
    damaged_segments: int


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """The delay between a change of the store and its visibility in a retriever.

    A retriever applies changes of the store in the background. `lag_s` is the time in seconds for
    which changes have been waiting to be applied; it is 0 if no change is waiting. A search does
    not wait for this background work, because it applies the changes of its collection itself.
    `embedded` is None if the store is not of the embedded engine.
    """

    lag_s: float
    embedded: EmbeddedReaderStatus | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that the services enforce, as a retriever reports them."""

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
    reply_bytes: int
    embedded_bytes: int
    filter_conditions: int
    filter_ranges: int
    statement_citations: int
    answer_citations: int
    answer_bytes: int
    metadata_values: int
    json_values: int
    json_depth: int
    batch_refusals: int
    call_metadata_pairs: int
    history_turns: int
    history_bytes: int
    document_pages: int
    table_cells: int
    element_attributes: int
    form_options: int
    xml_nodes: int
    data_depth: int
    rtf_depth: int
    archive_parts: int
    archive_bytes: int
    repeated_bytes: int
    picture_pixels: int
    run_chars: int
    white_space_chars: int
    document_leaves: int
    page_spans: int
    page_dpi: int
    page_boxes: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Version, settings, models, limits and status of a retriever.

    Without a chat model, `chat_model` is empty and the limits of answers are 0. `reader` is about
    the data of all tenants; it is None if the caller may not see it. `role` is the role of the
    caller: `read`, `write` or `admin`.
    """

    version: str
    embedder: str
    return_level: int
    default_limit: int
    default_candidates: int
    limits: Limits
    reader: ReaderStatus | None
    chat_model: str
    role: str = ""
