"""The methods of the gRPC service RetrieverService.

Each method decodes the request, calls the function that answers it, and encodes the response. The
server's interceptor turns errors into gRPC statuses.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import grpc

from hrag.server.auth import Role
from hrag.server.calls.call import caller_role
from hrag.server.calls.call_deadline import deadline_of
from hrag.v1 import retriever_pb2 as pb
from hrag.v1 import retriever_pb2_grpc
from hrag.values.answers import AnswerEvent, AnswerQuery
from hrag.values.deadline import Deadline
from hrag.values.documents import ByteRange
from hrag.values.reply_limit import (
    CHUNK_ADVICE,
    HIERARCHY_ADVICE,
    SEARCH_ADVICE,
    UNLIMITED,
    ReplyLimit,
)
from hrag.values.search import SearchQuery
from hrag.values.status import ServerInfo
from hrag.wire import answers, retriever
from hrag.wire.common import collection_or_default, document_info_message
from hrag.wire.encoded_results import encoded_batch, encoded_response
from hrag.wire.filters import optional_filter_from
from retriever_svc.browse import Browse
from retriever_svc.search_pipeline import Search
from retriever_svc.search_requests import CheckedQuery


class RetrieverServicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """Implements the gRPC service RetrieverService of protos/hrag/v1/retriever.proto."""

    def __init__(
        self,
        search: Search,
        answer: Callable[[AnswerQuery, Deadline], Iterator[AnswerEvent]],
        browse: Browse,
        info: Callable[[], ServerInfo],
        reply: ReplyLimit = UNLIMITED,
    ) -> None:
        self._search = search
        self._answer = answer
        self._browse = browse
        self._info = info
        self._reply = reply

    def Search(
        self, request: CheckedQuery | pb.SearchRequest, context: grpc.ServicerContext
    ) -> bytes:
        """Searches for one query, as `SearchRequests` returns it; returns the encoded response."""
        query: SearchQuery = (
            request if isinstance(request, CheckedQuery) else retriever.search_query_from(request)
        )
        return encoded_response(self._search.encoded(query, deadline_of(context)))

    def BatchSearch(self, request: pb.BatchSearchRequest, context: grpc.ServicerContext) -> bytes:
        """Searches for several queries; returns the encoded BatchSearchResponse."""
        queries = retriever.batch_queries_from(request)
        return encoded_batch(self._search.batch(queries, deadline_of(context)))

    def Answer(
        self, request: pb.AnswerRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.AnswerResponse]:
        query = answers.answer_query_from(request)
        for event in self._answer(query, deadline_of(context)):
            response = answers.answer_response(event)
            self._reply.check(response.ByteSize(), SEARCH_ADVICE)
            yield response

    def GetChunk(
        self, request: pb.GetChunkRequest, context: grpc.ServicerContext
    ) -> pb.GetChunkResponse:
        collection = collection_or_default(request.collection)
        response = retriever.chunk_response(
            self._browse.chunk(request.tenant_id, collection, request.chunk_id)
        )
        self._reply.check(response.ByteSize(), CHUNK_ADVICE)
        return response

    def GetHierarchy(
        self, request: pb.GetHierarchyRequest, context: grpc.ServicerContext
    ) -> pb.GetHierarchyResponse:
        hierarchy = self._browse.hierarchy(
            request.tenant_id,
            collection_or_default(request.collection),
            request.chunk_id,
            request.depth,
            content=request.include_content,
        )
        response = retriever.hierarchy_response(hierarchy)
        self._reply.check(response.ByteSize(), HIERARCHY_ADVICE)
        return response

    def GetOriginal(
        self, request: pb.GetOriginalRequest, context: grpc.ServicerContext
    ) -> pb.GetOriginalResponse:
        part = self._browse.original(
            request.tenant_id,
            collection_or_default(request.collection),
            request.document_id,
            ByteRange(request.start, request.end),
        )
        return retriever.original_response(part)

    def GetDocument(
        self, request: pb.RetrieverServiceGetDocumentRequest, context: grpc.ServicerContext
    ) -> pb.RetrieverServiceGetDocumentResponse:
        part = None
        if request.HasField("text_range"):
            part = ByteRange(request.text_range.start, request.text_range.end)
        info, text, end = self._browse.document(
            request.tenant_id,
            collection_or_default(request.collection),
            request.document_id,
            optional_filter_from(request),
            text=request.include_text or part is not None,
            part=part,
        )
        return pb.RetrieverServiceGetDocumentResponse(
            document=document_info_message(info), text=text, text_end=end if part else 0
        )

    def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: grpc.ServicerContext
    ) -> pb.GetServerInfoResponse:
        role = caller_role()
        info = replace(self._info(), role=role)
        if not role.includes(Role.ADMIN):
            info = replace(info, reader=None)
        return retriever.server_info_response(info)
