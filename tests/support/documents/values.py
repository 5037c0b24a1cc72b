"""Strategies that draw values of the classes of `hrag.types`; any value of a field may occur."""

from dataclasses import fields, replace
from datetime import UTC
from typing import Any

from hypothesis import strategies as st

from hrag import types
from hrag.filters import AllOf, AnyOf, Exists, Match, NoneOf, Range
from hrag.values.quotas import Quota, TenantUsage

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(max_size=20)
NAME = st.text("abc.-_09", min_size=1, max_size=9)
F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
METADATA = st.dictionaries(TEXT, JSON, max_size=4)
U32S = st.lists(U32, max_size=4).map(tuple)
UNITS = st.sampled_from(types.PageUnit)


def with_possible_unit(value: Any) -> Any:
    """Returns a value that has the unit PAGE if it has no pages, as every value without pages."""
    has_pages = value.page_count if hasattr(value, "page_count") else value.first_page
    return value if has_pages else replace(value, page_unit=types.PageUnit.PAGE)


spans = st.builds(types.Span, U32, U32, U32, U32)
chunks = st.builds(
    types.Chunk,
    chunk_id=NAME,
    document_id=NAME,
    level=U32,
    index=U32,
    content=TEXT,
    token_count=U32,
    span=spans,
    section_path=st.lists(TEXT, max_size=3).map(tuple),
    first_page=U32,
    last_page=U32,
    title=TEXT,
    source=TEXT,
    metadata=METADATA,
    page_starts=st.lists(st.builds(types.PageStart, U32, U32), max_size=3).map(tuple),
    page_unit=UNITS,
    recognised_pages=U32S,
).map(with_possible_unit)
nodes = st.builds(types.ChunkNode, chunks, TEXT, st.lists(NAME, max_size=3).map(tuple))


def _hierarchies(document_fields: dict[str, Any]) -> st.SearchStrategy[types.Hierarchy]:
    nodes_of_document = nodes.map(
        lambda node: replace(node, chunk=replace(node.chunk, **document_fields))
    )
    relatives = st.lists(nodes_of_document, max_size=2).map(tuple)
    return st.builds(types.Hierarchy, nodes_of_document, relatives, relatives, relatives)


hierarchies = st.fixed_dictionaries({"title": TEXT, "source": TEXT, "metadata": METADATA}).flatmap(
    _hierarchies
)
pages = st.builds(types.Page, TEXT, U32)
documents = st.builds(
    types.Document,
    body=TEXT | st.binary(max_size=20) | st.lists(pages, max_size=3).map(tuple),
    document_id=TEXT,
    title=TEXT,
    source=TEXT,
    mime_type=TEXT,
    metadata=METADATA,
    encoding=TEXT,
    keep_boilerplate=st.booleans(),
)
infos = st.builds(
    types.DocumentInfo,
    document_id=NAME,
    title=TEXT,
    source=TEXT,
    mime_type=TEXT,
    metadata=METADATA,
    chunks_per_level=U32S,
    token_count=U32,
    text_bytes=U32,
    page_count=U32,
    section_count=U32,
    sequence=U64,
    page_unit=UNITS,
    recognised_page_count=U32,
).map(with_possible_unit)
trees = st.builds(
    types.TreeSettings,
    st.sampled_from([(256,), (32, 64), (256, 512, 1024, 2048)]),
    st.floats(0, 0.5),
)
settings = st.builds(
    types.CollectionSettings,
    trees,
    NAME,
    U32,
    return_level=st.none() | st.just(0),
    summaries=st.sampled_from(types.SummaryUnit),
    analyzer=st.sampled_from(["", "english/1", "simple/2"]),
    index_headings=st.booleans(),
)
collections = st.builds(types.Collection, NAME, NAME, settings, U64)
setting_requests = st.builds(
    types.SettingsRequest,
    level_sizes=st.none() | st.lists(U32, min_size=1, max_size=4).map(tuple),
    overlap_ratio=st.none() | st.floats(0, 1),
    embedding_level=st.none() | U32,
    return_level=st.none() | U32,
    summaries=st.none() | st.sampled_from(types.SummaryUnit),
    embedder=st.none() | NAME,
    analyzer=st.none() | NAME,
    index_headings=st.none() | st.booleans(),
)
left_out = st.builds(types.LeftOut, st.sampled_from(types.LeftOutKind), U32, TEXT)
reports = st.builds(
    types.ReadReport,
    encoding=TEXT,
    table_count=U32,
    recognised_pages=U32S,
    unread_pages=U32S,
    left_out=st.lists(left_out, max_size=3).map(tuple),
    mime_type=TEXT,
    is_encoding_guessed=st.booleans(),
    page_count=U32,
    section_count=U32,
    page_unit=UNITS,
    advice=TEXT,
).map(with_possible_unit)
outcomes = st.sampled_from(types.IngestOutcome)
results = st.builds(types.IngestResult, NAME, outcomes, U64, U32S, U32, st.none() | reports)
segments = st.builds(types.Segment, U64, U64, U64, U64)
quotas = st.builds(
    Quota,
    st.none() | st.floats(0.001, 1e6),
    st.none() | st.integers(1, 2**32 - 1),
    *[st.none() | st.integers(1, 2**64 - 1)] * 3,
)
usages = st.builds(TenantUsage, U64, U64, U64, quotas)
tenants = st.builds(types.Tenant, NAME, usages, U64, U64)
index_details = st.builds(
    types.EmbeddedIndexStatus, U64, U64, st.lists(segments, max_size=3).map(tuple)
)
statuses = st.builds(types.IndexStatus, *[U64] * 10, usages, st.none() | index_details)
scores = st.none() | F32
children = st.builds(types.MatchedChild, NAME, F32, spans, scores, scores)
term_spans = st.builds(types.TermSpan, U32, U32)
cited_sentences = st.builds(
    types.MatchedSentence, spans, st.lists(TEXT, max_size=3).map(tuple), U32, U32, U32S
)
passages = st.builds(
    types.Passage,
    chunks,
    F32,
    st.lists(children, max_size=3).map(tuple),
    merged_chunk_ids=st.lists(NAME, max_size=2).map(tuple),
    lexical_score=scores,
    dense_score=scores,
    term_spans=st.lists(term_spans, max_size=3).map(tuple),
    matched_sentence=st.none() | cited_sentences,
    rerank_score=scores,
)
_section_fields = (NAME, TEXT, TEXT, F32, spans, st.lists(TEXT).map(tuple), U32, U32, UNITS, U32S)
sections = st.builds(types.ChosenSection, *_section_fields).map(with_possible_unit)
search_results = st.builds(
    types.SearchResult,
    passages=st.lists(passages, max_size=2).map(tuple),
    mode=st.sampled_from(types.SearchMode),
    matched_at_level=U32,
    returned_at_level=U32,
    candidates_considered=U32,
    exhausted=st.booleans(),
    sequence=U64,
    timings=st.builds(types.Timings, *[U32] * 7),
    plan=st.none() | st.sampled_from(types.SearchPlan),
    eligible_leaves=U64,
    sections=st.lists(sections, max_size=2).map(tuple),
    retrieval=st.sampled_from(types.Retrieval),
    fallback=TEXT,
    reranked=st.booleans(),
    rerank_failure=TEXT,
    standalone_question=st.none()
    | st.builds(types.StandaloneQuestion, TEXT, st.sampled_from(types.StandaloneMethod), TEXT),
)
moments = st.datetimes(timezones=st.just(UTC))
values = TEXT | st.floats(allow_nan=False) | st.booleans() | moments
bounds = st.none() | st.floats(allow_nan=False) | moments
filters = st.recursive(
    st.builds(Match, TEXT, st.lists(values, max_size=3).map(tuple))
    | st.builds(Range, TEXT, at_least=bounds, at_most=bounds)
    | st.builds(Range, TEXT, above=bounds, below=bounds)
    | st.builds(Exists, TEXT),
    lambda inner: st.builds(
        lambda kind, filters: kind(tuple(filters)),
        st.sampled_from([AllOf, AnyOf, NoneOf]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=5,
)
queries = st.builds(
    types.SearchQuery,
    tenant_id=TEXT,
    query=st.text(min_size=1, max_size=20),
    collection=NAME,
    mode=st.none() | st.sampled_from(types.SearchMode),
    limit=U32,
    return_level=st.none() | U32,
    candidates=U32,
    aggregation=st.sampled_from(types.Aggregation),
    token_budget=U32,
    min_sequence=U64,
    merge_ratio=st.none() | F32,
    merge_adjacent=st.booleans(),
    keep_overlap=st.booleans(),
    min_score=st.none() | F32,
    filter=st.none() | filters,
    window_sentences=st.none() | U32,
    cut_last=st.booleans(),
    top_sections=st.none() | U32,
    summary_scope=st.none() | st.sampled_from(types.SummaryScope),
    retrieval=st.none() | st.sampled_from(types.Retrieval),
    fusion=st.none() | st.sampled_from(types.FusionMethod),
    lexical_weight=scores,
    neighbour_bonus=scores,
    max_per_document=U32,
    rerank=st.none() | st.booleans(),
)
limits = st.builds(
    types.Limits,
    **{field.name: U64 if field.name.endswith("_bytes") else U32 for field in fields(types.Limits)},
)
reader_details = st.builds(types.EmbeddedReaderStatus, U64, U64, U32, U64, U64, U32)
reader_statuses = st.builds(types.ReaderStatus, st.floats(0, 1e6), st.none() | reader_details)
server_infos = st.builds(
    types.ServerInfo, TEXT, TEXT, U32, U32, U32, limits, st.none() | reader_statuses, TEXT, TEXT
)
