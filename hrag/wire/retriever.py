"""Converts values to and from the messages of retriever.proto, except those for Answer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from sys import intern
from typing import Any

from hrag.v1 import retriever_pb2 as pb
from hrag.values.chunks import Chunk, ChunkNode, Hierarchy
from hrag.values.conversation import StandaloneMethod, StandaloneQuestion
from hrag.values.documents import Original, OriginalPart
from hrag.values.errors import HragError, InvalidArgument, outcome_of
from hrag.values.quick_creation import created
from hrag.values.search import (
    Aggregation,
    ChosenSection,
    FusionMethod,
    Retrieval,
    SearchMode,
    SearchPlan,
    SearchQuery,
    SearchResult,
    SummaryScope,
    Timings,
)
from hrag.values.status import EmbeddedReaderStatus, Limits, ReaderStatus, ServerInfo
from hrag.wire.common import (
    built,
    checked_text,
    chunk_from,
    chunk_message,
    error_from,
    page_unit_from,
    page_unit_number,
    span_from,
    span_message,
)
from hrag.wire.fields import (
    dataclass_from,
    enum_number,
    enum_value,
    optional_enum_number,
)
from hrag.wire.filters import optional_filter_from, optional_filter_message
from hrag.wire.passages import passage_from, passage_message

MODE_NUMBER = {
    SearchMode.SMALL_TO_BIG: pb.SEARCH_MODE_SMALL_TO_BIG,
    SearchMode.STANDARD: pb.SEARCH_MODE_STANDARD,
    SearchMode.AUTO_MERGE: pb.SEARCH_MODE_AUTO_MERGE,
    SearchMode.SENTENCE_WINDOW: pb.SEARCH_MODE_SENTENCE_WINDOW,
    SearchMode.SUMMARY_FIRST: pb.SEARCH_MODE_SUMMARY_FIRST,
    SearchMode.CONTEXT: pb.SEARCH_MODE_CONTEXT,
}
_MODE: dict[int, SearchMode | None] = {
    **{number: mode for mode, number in MODE_NUMBER.items()},
    pb.SEARCH_MODE_UNSPECIFIED: None,
}
_AGGREGATION_NUMBER = {
    Aggregation.MAX: pb.AGGREGATION_MAX,
    Aggregation.SUM: pb.AGGREGATION_SUM,
    Aggregation.MEAN: pb.AGGREGATION_MEAN,
    Aggregation.COUNT: pb.AGGREGATION_COUNT,
}
_AGGREGATION = {number: aggregation for aggregation, number in _AGGREGATION_NUMBER.items()} | {
    pb.AGGREGATION_UNSPECIFIED: Aggregation.MAX
}
_SCOPE_NUMBER = {
    SummaryScope.SECTIONS: pb.SUMMARY_SCOPE_SECTIONS,
    SummaryScope.DOCUMENTS: pb.SUMMARY_SCOPE_DOCUMENTS,
}
_SCOPE: dict[int, SummaryScope | None] = {
    **{number: scope for scope, number in _SCOPE_NUMBER.items()},
    pb.SUMMARY_SCOPE_UNSPECIFIED: None,
}
RETRIEVAL_NUMBER = {
    Retrieval.HYBRID: pb.RETRIEVAL_HYBRID,
    Retrieval.DENSE: pb.RETRIEVAL_DENSE,
    Retrieval.LEXICAL: pb.RETRIEVAL_LEXICAL,
}
_RETRIEVAL: dict[int, Retrieval | None] = {
    **{number: retrieval for retrieval, number in RETRIEVAL_NUMBER.items()},
    pb.RETRIEVAL_UNSPECIFIED: None,
}
_FUSION_NUMBER = {
    FusionMethod.CONVEX: pb.FUSION_METHOD_CONVEX,
    FusionMethod.RECIPROCAL_RANK: pb.FUSION_METHOD_RECIPROCAL_RANK,
}
_FUSION: dict[int, FusionMethod | None] = {
    **{number: fusion for fusion, number in _FUSION_NUMBER.items()},
    pb.FUSION_METHOD_UNSPECIFIED: None,
}
_QUERY_ENUMS: dict[str, Mapping[Any, Any]] = {
    "mode": _MODE,
    "aggregation": _AGGREGATION,
    "summary_scope": _SCOPE,
    "retrieval": _RETRIEVAL,
    "fusion": _FUSION,
}
# These options of a SearchQuery are converted. All other options have the same name and type in
# SearchRequest, so they are copied.
_CONVERTED = {"query", "vector", "filter", *_QUERY_ENUMS}
_COPIED = tuple(field.name for field in fields(SearchQuery) if field.name not in _CONVERTED)
# The name of each field of a request. Reading the name of a descriptor creates a new string.
_REQUEST_FIELDS = {field: intern(field.name) for field in pb.SearchRequest.DESCRIPTOR.fields}
PLAN_NUMBER = {
    SearchPlan.SCAN: pb.SEARCH_PLAN_SCAN,
    SearchPlan.INDEX: pb.SEARCH_PLAN_INDEX,
}
_PLAN = {number: plan for plan, number in PLAN_NUMBER.items()}
_METHOD_NUMBER = {
    StandaloneMethod.MODEL: pb.STANDALONE_METHOD_MODEL,
    StandaloneMethod.LAST_TURNS: pb.STANDALONE_METHOD_LAST_TURNS,
}
_METHOD = {number: method for method, number in _METHOD_NUMBER.items()}


def search_query_from(message: pb.SearchRequest) -> SearchQuery:
    """Returns the query of a request; raises InvalidArgument if a field is invalid.

    The vector of the query is a sequence of floats.
    """
    # A request has about thirty fields, of which at most a dozen are set. Only the fields that are
    # set are read. The defaults of SearchQuery apply to all other fields.
    options = {_REQUEST_FIELDS[field]: value for field, value in message.ListFields()}
    for name, names in _QUERY_ENUMS.items():
        if name in options:
            options[name] = enum_value(names, options[name], name)
    text = options.pop("text", "")
    if "vector" in options:
        options["vector"] = message.vector.values
    if "filter" in options:
        options["filter"] = optional_filter_from(message)
    options["query"] = text if text else options.pop("vector", "")
    options.setdefault("tenant_id", "")
    return created(SearchQuery, options)


def search_request(query: SearchQuery) -> pb.SearchRequest:
    """Returns the request of a query.

    Raises InvalidArgument for a value that does not fit into the message.
    """
    message = built(
        pb.SearchRequest,
        **{name: getattr(query, name) for name in _COPIED},
        mode=optional_enum_number(MODE_NUMBER, query.mode, "mode"),
        aggregation=enum_number(_AGGREGATION_NUMBER, query.aggregation, "aggregation"),
        filter=optional_filter_message(query.filter),
        summary_scope=optional_enum_number(_SCOPE_NUMBER, query.summary_scope, "summary_scope"),
        retrieval=optional_enum_number(RETRIEVAL_NUMBER, query.retrieval, "retrieval"),
        fusion=optional_enum_number(_FUSION_NUMBER, query.fusion, "fusion"),
    )
    vector = query.vector
    if isinstance(query.query, str):
        message.text = checked_text(query.query, "text")
    elif vector is None:
        vector = query.query
    else:
        raise InvalidArgument("vector is given twice: in query and in vector", field="vector")
    if vector is not None:
        message.vector.values.extend(vector)
        message.vector.SetInParent()
    return message


def batch_queries_from(message: pb.BatchSearchRequest) -> list[SearchQuery | HragError]:
    """Returns one element for each request of a batch, in order: its query, or an error.

    The element is an error if the request is invalid.
    """
    return [outcome_of(search_query_from, search) for search in message.searches]


def batch_request(queries: Sequence[SearchQuery]) -> pb.BatchSearchRequest:
    return pb.BatchSearchRequest(searches=map(search_request, queries))


def batch_from(message: pb.BatchSearchResponse) -> list[SearchResult | HragError]:
    return [_outcome_from(outcome) for outcome in message.outcomes]


def _outcome_from(message: pb.SearchOutcome) -> SearchResult | HragError:
    if message.HasField("response"):
        return search_result_from(message.response)
    return error_from(message.error)


def search_response(result: SearchResult) -> pb.SearchResponse:
    question = result.standalone_question
    return pb.SearchResponse(
        passages=map(passage_message, result.passages),
        mode=MODE_NUMBER[result.mode],
        matched_at_level=result.matched_at_level,
        returned_at_level=result.returned_at_level,
        candidates_considered=result.candidates_considered,
        exhausted=result.exhausted,
        sequence=result.sequence,
        timings=pb.Timings(**asdict(result.timings)),
        plan=None if result.plan is None else PLAN_NUMBER[result.plan],
        eligible_leaves=result.eligible_leaves,
        sections=map(section_message, result.sections),
        retrieval=RETRIEVAL_NUMBER[result.retrieval],
        reranked=result.reranked,
        rerank_failure=result.rerank_failure,
        fallback=result.fallback,
        standalone_question=None if question is None else standalone_message(question),
    )


def standalone_message(question: StandaloneQuestion) -> pb.StandaloneQuestion:
    return pb.StandaloneQuestion(
        text=question.text, method=_METHOD_NUMBER[question.method], failure=question.failure
    )


def _standalone_from(message: pb.SearchResponse) -> StandaloneQuestion | None:
    if not message.HasField("standalone_question"):
        return None
    question = message.standalone_question
    method = enum_value(_METHOD, question.method, "method")
    return StandaloneQuestion(question.text, method, question.failure)


def section_message(section: ChosenSection) -> pb.ChosenSection:
    return pb.ChosenSection(
        document_id=section.document_id,
        title=section.title,
        summary=section.summary,
        score=section.score,
        span=span_message(section.span),
        section_path=section.section_path,
        first_page=section.first_page,
        last_page=section.last_page,
        page_unit=page_unit_number(section.page_unit if section.first_page else None),
        recognised_pages=section.recognised_pages,
    )


def _section_from(message: pb.ChosenSection) -> ChosenSection:
    return ChosenSection(
        document_id=message.document_id,
        title=message.title,
        summary=message.summary,
        score=message.score,
        span=span_from(message.span),
        section_path=tuple(message.section_path),
        first_page=message.first_page,
        last_page=message.last_page,
        page_unit=page_unit_from(message.page_unit),
        recognised_pages=tuple(message.recognised_pages),
    )


def search_result_from(message: pb.SearchResponse) -> SearchResult:
    return SearchResult(
        passages=tuple(map(passage_from, message.passages)),
        mode=enum_value(_MODE, message.mode, "mode") or SearchMode.SMALL_TO_BIG,
        matched_at_level=message.matched_at_level,
        returned_at_level=message.returned_at_level,
        candidates_considered=message.candidates_considered,
        exhausted=message.exhausted,
        sequence=message.sequence,
        timings=dataclass_from(Timings, message.timings),
        plan=_PLAN.get(message.plan),
        eligible_leaves=message.eligible_leaves,
        sections=tuple(map(_section_from, message.sections)),
        retrieval=_RETRIEVAL.get(message.retrieval) or Retrieval.DENSE,
        fallback=message.fallback,
        reranked=message.reranked,
        rerank_failure=message.rerank_failure,
        standalone_question=_standalone_from(message),
    )


def chunk_response(node: ChunkNode) -> pb.GetChunkResponse:
    return pb.GetChunkResponse(
        chunk=chunk_message(node.chunk), parent_id=node.parent_id, child_ids=node.child_ids
    )


def chunk_node_from(message: pb.GetChunkResponse) -> ChunkNode:
    return ChunkNode(chunk_from(message.chunk), message.parent_id, tuple(message.child_ids))


def original_response(part: OriginalPart) -> pb.GetOriginalResponse:
    return pb.GetOriginalResponse(
        content=part.content,
        start=part.start,
        size_bytes=part.original.size_bytes,
        sha256=part.original.sha256,
        mime_type=part.mime_type,
        source=part.source,
    )


def original_part_from(document_id: str, message: pb.GetOriginalResponse) -> OriginalPart:
    """Decodes a part of the original of the document with this id, which the reply lacks."""
    original = Original(message.size_bytes, message.sha256)
    return OriginalPart(
        document_id, message.source, message.mime_type, original, message.start, message.content
    )


def hierarchy_response(hierarchy: Hierarchy) -> pb.GetHierarchyResponse:
    return pb.GetHierarchyResponse(
        node=_node_message(hierarchy.node),
        ancestors=map(_relative_message, hierarchy.ancestors),
        siblings=map(_relative_message, hierarchy.siblings),
        descendants=map(_relative_message, hierarchy.descendants),
    )


def hierarchy_from(message: pb.GetHierarchyResponse) -> Hierarchy:
    node = _node_from(message.node)
    relative_from = partial(_relative_from, node.chunk)
    return Hierarchy(
        node,
        tuple(map(relative_from, message.ancestors)),
        tuple(map(relative_from, message.siblings)),
        tuple(map(relative_from, message.descendants)),
    )


def _node_message(node: ChunkNode) -> pb.ChunkNode:
    return pb.ChunkNode(
        chunk=chunk_message(node.chunk), parent_id=node.parent_id, child_ids=node.child_ids
    )


def _node_from(message: pb.ChunkNode) -> ChunkNode:
    return ChunkNode(chunk_from(message.chunk), message.parent_id, tuple(message.child_ids))


def _relative_message(node: ChunkNode) -> pb.ChunkNode:
    """Returns the message of a relative, without the title, source and metadata of the document.

    A relative is an ancestor, a sibling or a descendant of the chunk that the call names. A reply
    may contain thousands of relatives, and copies of the three fields in each would fill the reply.
    """
    return _node_message(replace(node, chunk=replace(node.chunk, title="", source="", metadata={})))


def _relative_from(chunk: Chunk, message: pb.ChunkNode) -> ChunkNode:
    """Returns a relative of `chunk`, and copies the title, source and metadata of `chunk` to it."""
    node = _node_from(message)
    complete = replace(node.chunk, title=chunk.title, source=chunk.source, metadata=chunk.metadata)
    return replace(node, chunk=complete)


def server_info_response(info: ServerInfo) -> pb.GetServerInfoResponse:
    return pb.GetServerInfoResponse(
        version=info.version,
        embedder=info.embedder,
        return_level=info.return_level,
        default_limit=info.default_limit,
        default_candidates=info.default_candidates,
        limits=pb.Limits(**asdict(info.limits)),
        reader=None if info.reader is None else pb.ReaderStatus(**asdict(info.reader)),
        chat_model=info.chat_model,
        role=info.role,
    )


def server_info_from(message: pb.GetServerInfoResponse) -> ServerInfo:
    return ServerInfo(
        version=message.version,
        embedder=message.embedder,
        return_level=message.return_level,
        default_limit=message.default_limit,
        default_candidates=message.default_candidates,
        limits=dataclass_from(Limits, message.limits),
        reader=_reader_from(message.reader) if message.HasField("reader") else None,
        chat_model=message.chat_model,
        role=message.role,
    )


def _reader_from(message: pb.ReaderStatus) -> ReaderStatus:
    embedded = message.embedded if message.HasField("embedded") else None
    return ReaderStatus(
        message.lag_s, None if embedded is None else dataclass_from(EmbeddedReaderStatus, embedded)
    )
