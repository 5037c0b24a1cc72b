"""The code that both clients share: channel options, error translation, and the calls.

A function of this module builds a `ClientCall`, which contains the request and the function that
reads the response. The clients send the call; this module does no I/O. Building a call raises
InvalidArgument for values that protobuf cannot represent.

gRPC itself retries calls, but only calls that may run twice: calls that read, and IngestDocument,
which leaves an identical document UNCHANGED. A stream is not retried after its first response has
arrived.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import grpc
import grpc.aio

from hrag.client.argument_checks import checked_document, checked_queries, checked_query
from hrag.client.targets import Target
from hrag.host.addresses import is_loopback
from hrag.v1 import indexer_pb2, retriever_pb2, types_pb2
from hrag.values.answers import AnswerEvent, AnswerQuery
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.collections import (
    Alias,
    AliasChange,
    Collection,
    Listing,
    ReembedProgress,
    SettingsRequest,
)
from hrag.values.documents import (
    Document,
    DocumentCount,
    DocumentDeletion,
    DocumentInfo,
    IngestResult,
    MetadataChange,
    MetadataUpdate,
)
from hrag.values.errors import DocumentChanged, HragError, InvalidArgument, ServiceUnavailable
from hrag.values.filters import Filter
from hrag.values.quotas import Tenant
from hrag.values.search import SearchQuery, SearchResult
from hrag.values.status import IndexStatus, ServerInfo
from hrag.wire import answers, common, filters, indexer, retriever
from hrag.wire.status_codes import error_from

TIMEOUT_S = 30.0
# The default deadline of `answer`. It is longer than the default deadline of other calls, because a
# chat model needs more time to write an answer than a search takes.
ANSWER_TIMEOUT_S = 120.0
# While a text is read in parts, its document may be replaced at most this often; then the reader
# gets DocumentChanged. After each replacement, the text is read again from the start, and the parts
# that were read before are wasted.
_MAX_TEXT_RESTARTS = 10
_TEXT_RANGE = "text_range"

_RETRIED = {
    "hrag.v1.IndexerService": (
        "ListTenants",
        "GetCollection",
        "ReembedCollection",
        "ListCollections",
        "ListAliases",
        "IngestDocument",
        "GetPageImage",
        "ListDocuments",
        "CountDocuments",
        "GetIndexStatus",
    ),
    "hrag.v1.RetrieverService": (
        "Search",
        "BatchSearch",
        "Answer",
        "GetChunk",
        "GetHierarchy",
        "GetOriginal",
        "GetDocument",
        "GetServerInfo",
    ),
}
_RETRY_POLICY = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 3,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": service, "method": method} for method in methods],
            "retryPolicy": _RETRY_POLICY,
        }
        for service, methods in _RETRIED.items()
    ]
}
_UNLIMITED = -1
_CHANNEL_OPTIONS = [
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.max_receive_message_length", _UNLIMITED),
    ("grpc.max_send_message_length", _UNLIMITED),
    ("grpc.keepalive_time_ms", 30_000),
    # Each client has a separate connection, so that clients are distributed over the processes of
    # a service: several processes may share one port, and all calls of one connection reach the
    # same process.
    ("grpc.use_local_subchannel_pool", 1),
]

Result = TypeVar("Result")


def channel_options(address: str) -> list[tuple[str, Any]]:
    """Returns the options of a gRPC channel to `address`.

    No HTTP proxy is used if the address is on this machine.
    """
    return [*_CHANNEL_OPTIONS, ("grpc.enable_http_proxy", int(not is_loopback(address)))]


@contextmanager
def translated_errors(is_closed: Callable[[], bool], target: Target) -> Iterator[None]:
    """Translates gRPC errors, which the `with` block raises, to errors of `hrag.errors`.

    `target` is the service that is called; the messages of some errors say how to reach it.
    Errors that gRPC raises because the client is closed become ServiceUnavailable. The function
    `is_closed` returns True if the client is closed.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise target.explained(error_from(error), error) from error
    # A call on a closed channel raises ValueError, or UsageError with asyncio.
    except (ValueError, grpc.aio.UsageError):
        if not is_closed():
            raise
        raise ServiceUnavailable("this client is closed") from None
    # A call on an asyncio channel raises CancelledError while the channel is being closed.
    except asyncio.CancelledError:
        if not is_closed() or is_cancelled():
            raise
        raise ServiceUnavailable("this client is closed") from None


def is_cancelled() -> bool:
    """Returns True if the current asyncio task was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@dataclass(frozen=True, slots=True)
class ClientCall(Generic[Result]):
    """A call of one gRPC method that a client may send.

    It contains the request, and the function `read` that converts the response into the result.
    """

    service: Literal["indexer", "retriever"]
    method: str
    request: Any
    read: Callable[[Any], Result]


def create_collection(
    tenant_id: str, name: str, settings: SettingsRequest
) -> ClientCall[Collection]:
    """Builds the call CreateCollection, whose result is the collection."""
    request = common.built(
        indexer_pb2.CreateCollectionRequest,
        tenant_id=tenant_id,
        name=name,
        settings=common.settings_request_message(settings),
    )
    return ClientCall("indexer", "CreateCollection", request, _read_collection)


def get_collection(tenant_id: str, name: str) -> ClientCall[Collection]:
    """Builds the call GetCollection, whose result is the collection."""
    request = common.built(indexer_pb2.GetCollectionRequest, tenant_id=tenant_id, name=name)
    return ClientCall("indexer", "GetCollection", request, _read_collection)


def _read_collection(response: Any) -> Collection:
    return common.collection_from(response.collection)


def list_tenants(page_size: int, page_token: str) -> ClientCall[Listing[Tenant]]:
    """Builds the call ListTenants, whose result is one page of tenants."""
    request = common.built(
        indexer_pb2.ListTenantsRequest, page_size=page_size, page_token=page_token
    )
    return ClientCall("indexer", "ListTenants", request, indexer.tenants_from)


def list_collections(
    tenant_id: str, page_size: int, page_token: str
) -> ClientCall[Listing[Collection]]:
    """Builds the call ListCollections, whose result is one page of collections."""
    request = common.built(
        indexer_pb2.ListCollectionsRequest,
        tenant_id=tenant_id,
        page_size=page_size,
        page_token=page_token,
    )
    return ClientCall("indexer", "ListCollections", request, indexer.collections_from)


def delete_collection(tenant_id: str, name: str) -> ClientCall[int]:
    """Builds the call DeleteCollection, whose result is the sequence number of the deletion."""
    request = common.built(indexer_pb2.DeleteCollectionRequest, tenant_id=tenant_id, name=name)
    return ClientCall("indexer", "DeleteCollection", request, _read_sequence)


def reembed_collection(tenant_id: str, name: str) -> ClientCall[ReembedProgress]:
    """Builds the call ReembedCollection, whose result says how far the collection is."""
    request = common.built(indexer_pb2.ReembedCollectionRequest, tenant_id=tenant_id, name=name)
    return ClientCall("indexer", "ReembedCollection", request, indexer.reembed_progress_from)


def _read_sequence(response: Any) -> int:
    sequence: int = response.sequence
    return sequence


def set_alias(tenant_id: str, alias: str, collection: str) -> ClientCall[AliasChange]:
    """Builds the call SetAlias, whose result says which collection the alias named before."""
    request = common.built(
        indexer_pb2.SetAliasRequest, tenant_id=tenant_id, alias=alias, collection=collection
    )
    return ClientCall("indexer", "SetAlias", request, indexer.alias_change_from)


def delete_alias(tenant_id: str, alias: str) -> ClientCall[int]:
    """Builds the call DeleteAlias, whose result is the sequence number of the deletion."""
    request = common.built(indexer_pb2.DeleteAliasRequest, tenant_id=tenant_id, alias=alias)
    return ClientCall("indexer", "DeleteAlias", request, _read_sequence)


def list_aliases(tenant_id: str) -> ClientCall[tuple[Alias, ...]]:
    """Builds the call ListAliases, whose result contains all aliases of the tenant."""
    request = common.built(indexer_pb2.ListAliasesRequest, tenant_id=tenant_id)
    return ClientCall("indexer", "ListAliases", request, indexer.aliases_from)


def ingest(
    tenant_id: str, document: Document, collection: str, validate_only: bool = False
) -> ClientCall[IngestResult]:
    """Builds the call IngestDocument, whose result says how the document was stored."""
    request = common.built(
        indexer_pb2.IngestDocumentRequest,
        tenant_id=tenant_id,
        collection=collection,
        document=common.document_message(checked_document(document)),
        validate_only=validate_only,
    )
    return ClientCall("indexer", "IngestDocument", request, indexer.ingest_result_from)


def ingest_many_requests(
    tenant_id: str, collection: str, validate_only: bool = False
) -> Callable[[Document], indexer_pb2.IngestDocumentsRequest]:
    """Returns a function that builds the request of a document in the stream IngestDocuments.

    Raises InvalidArgument for a tenant or a collection name that protobuf cannot represent.
    """
    common.built(indexer_pb2.IngestDocumentsRequest, tenant_id=tenant_id, collection=collection)
    return partial(
        ingest_many_request, tenant_id, collection=collection, validate_only=validate_only
    )


def ingest_many_request(
    tenant_id: str, document: Document, collection: str, validate_only: bool = False
) -> indexer_pb2.IngestDocumentsRequest:
    """Returns the request message for one document in the stream IngestDocuments."""
    return common.built(
        indexer_pb2.IngestDocumentsRequest,
        tenant_id=tenant_id,
        collection=collection,
        document=common.document_message(checked_document(document)),
        validate_only=validate_only,
    )


def update_metadata(
    tenant_id: str, document_id: str, change: MetadataChange, collection: str
) -> ClientCall[MetadataUpdate]:
    """Builds the call UpdateMetadata, whose result is the changed document and the outcome."""
    request = indexer.metadata_request(tenant_id, collection, document_id, change)
    return ClientCall("indexer", "UpdateMetadata", request, indexer.metadata_update_from)


def delete_document(tenant_id: str, document_id: str, collection: str) -> ClientCall[int]:
    """Builds the call DeleteDocument, whose result is the sequence number of the deletion."""
    request = common.built(
        indexer_pb2.DeleteDocumentRequest,
        tenant_id=tenant_id,
        collection=collection,
        document_id=document_id,
    )
    return ClientCall("indexer", "DeleteDocument", request, _read_sequence)


def delete_documents(
    tenant_id: str, filter: Filter, collection: str
) -> ClientCall[DocumentDeletion]:
    """Builds the call DeleteDocuments.

    The result of the call is the count of deleted documents and the sequence number of the last
    deletion.
    """
    request = common.built(
        indexer_pb2.DeleteDocumentsRequest,
        tenant_id=tenant_id,
        collection=collection,
        filter=filters.filter_message(filter),
    )
    return ClientCall("indexer", "DeleteDocuments", request, indexer.deletion_from)


def get_document(
    tenant_id: str, document_id: str, collection: str, filter: Filter | None = None
) -> ClientCall[DocumentInfo]:
    """Builds the call GetDocument, whose result is the document's description without the text."""
    request = common.built(
        retriever_pb2.RetrieverServiceGetDocumentRequest,
        tenant_id=tenant_id,
        collection=collection,
        document_id=document_id,
        filter=filters.optional_filter_message(filter),
    )
    return ClientCall(
        "retriever",
        "GetDocument",
        request,
        lambda response: common.document_info_from(response.document),
    )


class PartialRead(Protocol):
    """The part of a text or a file that was read so far, by one or more calls."""

    @property
    def is_whole(self) -> bool:
        """True if all of it was read."""

    def after(self, error: InvalidArgument) -> Self:
        """Returns an empty part if `error` means that the text or the file was replaced.

        Raises `error` again if it has another cause.
        """


Part = TypeVar("Part", bound=PartialRead)


class TextPart(NamedTuple):
    """The part of a document's text that was read so far, from the start to the byte offset `end`.

    It is the text of the document's version with the sequence number `sequence`. `restarts` is how
    often the text was read again from the start, because the document was replaced.
    """

    text: str = ""
    end: int = 0
    sequence: int = 0
    is_whole: bool = False
    restarts: int = 0

    def longer(self, response: retriever_pb2.RetrieverServiceGetDocumentResponse) -> "TextPart":
        """Returns a TextPart with the text of this part, followed by the text in the response.

        If the document was replaced after this part was read, the returned TextPart is empty, so
        that the text is read again from the start.
        """
        document, end = response.document, response.text_end
        if self.end and document.sequence != self.sequence:
            return self._restarted()
        # An older service cannot send a part of a text. It sends the whole text, and 0 as the end.
        is_whole = end in (0, document.text_bytes)
        text = self.text + response.text
        return TextPart(text, end, document.sequence, is_whole, self.restarts)

    def after(self, error: InvalidArgument) -> "TextPart":
        """Returns an empty part if `error` means that the text is now shorter than this part.

        In this case the document was replaced, and its text is read again from the start. Raises
        `error` again if `error` has another cause.
        """
        if not self.end or error.field != _TEXT_RANGE:
            raise error
        return self._restarted()

    def _restarted(self) -> "TextPart":
        return TextPart(restarts=self.restarts + 1)


def get_text(
    tenant_id: str, document_id: str, collection: str, before: TextPart
) -> ClientCall[TextPart]:
    """Builds a call GetDocument that reads the text after the part `before`.

    The result of the call is `before`, extended by as much text as one reply may contain. Raises
    DocumentChanged if the document was replaced too often while its text was read.
    """
    if before.restarts > _MAX_TEXT_RESTARTS:
        raise DocumentChanged(
            f"document {document_id!r} was replaced {before.restarts} times while its text was "
            f"read; at most {_MAX_TEXT_RESTARTS} times are allowed"
        )
    request = _text_request(tenant_id, document_id, collection, before.end, 0)
    return ClientCall("retriever", "GetDocument", request, before.longer)


def get_text_part(
    tenant_id: str, document_id: str, collection: str, start: int, end: int
) -> ClientCall[tuple[str, int]]:
    """Builds the call GetDocument, whose result is a part of the text and its end in bytes."""
    request = _text_request(tenant_id, document_id, collection, start, end)
    return ClientCall(
        "retriever", "GetDocument", request, lambda response: (response.text, response.text_end)
    )


def _text_request(
    tenant_id: str, document_id: str, collection: str, start: int, end: int
) -> retriever_pb2.RetrieverServiceGetDocumentRequest:
    return common.built(
        retriever_pb2.RetrieverServiceGetDocumentRequest,
        tenant_id=tenant_id,
        collection=collection,
        document_id=document_id,
        include_text=True,
        text_range=common.built(types_pb2.ByteRange, start=start, end=end),
    )


def list_documents(
    tenant_id: str, collection: str, page_size: int, page_token: str, filter: Filter | None
) -> ClientCall[Listing[DocumentInfo]]:
    """Builds the call ListDocuments, whose result is one page of documents."""
    request = common.built(
        indexer_pb2.ListDocumentsRequest,
        tenant_id=tenant_id,
        collection=collection,
        page_size=page_size,
        page_token=page_token,
        filter=filters.optional_filter_message(filter),
    )
    return ClientCall("indexer", "ListDocuments", request, indexer.documents_from)


def count_documents(
    tenant_id: str, collection: str, filter: Filter | None
) -> ClientCall[DocumentCount]:
    """Builds the call CountDocuments, whose result counts the documents that pass the filter."""
    request = common.built(
        indexer_pb2.CountDocumentsRequest,
        tenant_id=tenant_id,
        collection=collection,
        filter=filters.optional_filter_message(filter),
    )
    return ClientCall("indexer", "CountDocuments", request, indexer.count_from)


def index_status(tenant_id: str, collection: str) -> ClientCall[IndexStatus]:
    """Builds the call GetIndexStatus, whose result is the index status of the collection."""
    request = common.built(
        indexer_pb2.GetIndexStatusRequest, tenant_id=tenant_id, collection=collection
    )
    return ClientCall("indexer", "GetIndexStatus", request, indexer.status_from)


def search(query: SearchQuery) -> ClientCall[SearchResult]:
    """Builds the call Search, whose result contains the passages."""
    request = retriever.search_request(checked_query(query))
    return ClientCall("retriever", "Search", request, retriever.search_result_from)


def batch_search(queries: Sequence[SearchQuery]) -> ClientCall[list[SearchResult | HragError]]:
    """Builds the call BatchSearch, whose result is one result or one error for each query."""
    request = retriever.batch_request(checked_queries(queries))
    return ClientCall("retriever", "BatchSearch", request, retriever.batch_from)


def answer(query: AnswerQuery) -> ClientCall[AnswerEvent]:
    """Builds the call Answer, a stream. Each response of the stream becomes one AnswerEvent."""
    checked_query(query.search)
    return ClientCall(
        "retriever", "Answer", answers.answer_request(query), answers.answer_event_from
    )


def get_chunk(tenant_id: str, chunk_id: str, collection: str) -> ClientCall[ChunkNode]:
    """Builds the call GetChunk, whose result is a chunk with the ids of its parent and children."""
    request = common.built(
        retriever_pb2.GetChunkRequest, tenant_id=tenant_id, collection=collection, chunk_id=chunk_id
    )
    return ClientCall("retriever", "GetChunk", request, retriever.chunk_node_from)


def get_hierarchy(
    tenant_id: str, chunk_id: str, collection: str, depth: int, include_content: bool
) -> ClientCall[Hierarchy]:
    """Builds the call GetHierarchy, whose result is a chunk with its relatives in the tree."""
    request = common.built(
        retriever_pb2.GetHierarchyRequest,
        tenant_id=tenant_id,
        collection=collection,
        chunk_id=chunk_id,
        depth=depth,
        include_content=include_content,
    )
    return ClientCall("retriever", "GetHierarchy", request, retriever.hierarchy_from)


def server_info() -> ClientCall[ServerInfo]:
    """Builds the call GetServerInfo, whose result describes the retriever and its settings."""
    request = retriever_pb2.GetServerInfoRequest()
    return ClientCall("retriever", "GetServerInfo", request, retriever.server_info_from)
