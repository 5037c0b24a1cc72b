"""The synchronous client. Safe to share between threads."""

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from hrag.answers.values import AnswerEvent, AnswerQuery
from hrag.client import calls
from hrag.client.access import Access, File
from hrag.client.calls import (
    ANSWER_TIMEOUT_S,
    INDEXER_ADDRESS,
    RETRIEVER_ADDRESS,
    TIMEOUT_S,
    Result,
    channel_options,
    own_errors,
)
from hrag.errors import HragError
from hrag.filters import Filter
from hrag.types import (
    DEFAULT_CANDIDATES,
    DEFAULT_COLLECTION,
    DEFAULT_LIMIT,
    Aggregation,
    ChunkNode,
    Collection,
    Document,
    DocumentInfo,
    Hierarchy,
    IndexStatus,
    IngestResult,
    Listing,
    SearchMode,
    SearchQuery,
    SearchResult,
    ServerInfo,
    SettingsRequest,
    SummaryScope,
)
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc
from hrag.wire import indexer

_NO_SETTINGS = SettingsRequest()


class Client:
    """Talks to both services. Connects at the first call; close it, or use `with`.

    `timeout_s` bounds each call that does not bring its own. `token` is an API key or a
    JSON Web Token. `ca_file` is who signed the services' certificates, and has the client
    speak TLS; `cert_file` and `key_file` are its own, where services ask for one. Without
    TLS a token goes to this machine alone. Raises `hrag.errors`.
    """

    def __init__(
        self,
        indexer: str = INDEXER_ADDRESS,
        retriever: str = RETRIEVER_ADDRESS,
        timeout_s: float = TIMEOUT_S,
        *,
        token: str = "",
        ca_file: File | None = None,
        cert_file: File | None = None,
        key_file: File | None = None,
    ) -> None:
        access = Access(token, ca_file, cert_file, key_file)
        self._channels = [
            access.channel(address, channel_options(address)) for address in (indexer, retriever)
        ]
        self._stubs: dict[str, Any] = {
            "indexer": indexer_pb2_grpc.IndexerServiceStub(self._channels[0]),
            "retriever": retriever_pb2_grpc.RetrieverServiceStub(self._channels[1]),
        }
        self._timeout_s = timeout_s
        self._metadata = access.metadata
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes both connections; running calls are cancelled."""
        self._closed = True
        for channel in self._channels:
            channel.close()

    def create_collection(
        self,
        tenant_id: str,
        name: str,
        settings: SettingsRequest = _NO_SETTINGS,
        *,
        timeout_s: float | None = None,
    ) -> Collection:
        """Creates a collection; what `settings` leaves out takes the indexer's own."""
        return self._run(calls.create_collection(tenant_id, name, settings), timeout_s)

    def get_collection(
        self, tenant_id: str, name: str, *, timeout_s: float | None = None
    ) -> Collection:
        """Raises CollectionNotFound."""
        return self._run(calls.get_collection(tenant_id, name), timeout_s)

    def list_collections(
        self,
        tenant_id: str,
        *,
        page_size: int = 0,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> Listing[Collection]:
        """One page, in order of name; a page size of 0 is the server's default."""
        return self._run(calls.list_collections(tenant_id, page_size, page_token), timeout_s)

    def delete_collection(
        self, tenant_id: str, name: str, *, timeout_s: float | None = None
    ) -> int:
        """Deletes a collection with its documents; returns the sequence."""
        return self._run(calls.delete_collection(tenant_id, name), timeout_s)

    def ingest(
        self,
        tenant_id: str,
        document: Document,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> IngestResult:
        """Stores one document, whole or not at all."""
        return self._run(calls.ingest(tenant_id, document, collection), timeout_s)

    def delete_document(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> int:
        """Deletes one document; returns the sequence. Raises DocumentNotFound."""
        return self._run(calls.delete_document(tenant_id, document_id, collection), timeout_s)

    def get_document(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> DocumentInfo:
        """What is stored of one document, without its text. Raises DocumentNotFound."""
        return self._run(calls.get_document(tenant_id, document_id, collection), timeout_s)

    def get_text(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> str:
        """One document's whole text, in which offsets count. Raises DocumentNotFound."""
        return self._run(calls.get_text(tenant_id, document_id, collection), timeout_s)

    def list_documents(
        self,
        tenant_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        page_size: int = 0,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> Listing[DocumentInfo]:
        """One page, in order of id; a page size of 0 is the server's default."""
        call = calls.list_documents(tenant_id, collection, page_size, page_token)
        return self._run(call, timeout_s)

    def index_status(
        self,
        tenant_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> IndexStatus:
        """How much the collection holds, and how far its index has come."""
        return self._run(calls.index_status(tenant_id, collection), timeout_s)

    def search(
        self,
        tenant_id: str,
        query: str | Sequence[float],
        *,
        collection: str = DEFAULT_COLLECTION,
        mode: SearchMode = SearchMode.SMALL_TO_BIG,
        limit: int = DEFAULT_LIMIT,
        return_level: int | None = None,
        candidates: int = DEFAULT_CANDIDATES,
        aggregation: Aggregation = Aggregation.MAX,
        token_budget: int = 0,
        min_sequence: int = 0,
        merge_ratio: float | None = None,
        merge_adjacent: bool = False,
        min_score: float | None = None,
        filter: Filter | None = None,
        window_sentences: int | None = None,
        cut_last: bool = False,
        top_sections: int | None = None,
        summary_scope: SummaryScope | None = None,
        timeout_s: float | None = None,
    ) -> SearchResult:
        """The passages that best answer a text, or a vector that is embedded already."""
        asked = SearchQuery(
            tenant_id=tenant_id,
            query=query,
            collection=collection,
            mode=mode,
            limit=limit,
            return_level=return_level,
            candidates=candidates,
            aggregation=aggregation,
            token_budget=token_budget,
            min_sequence=min_sequence,
            merge_ratio=merge_ratio,
            merge_adjacent=merge_adjacent,
            min_score=min_score,
            filter=filter,
            window_sentences=window_sentences,
            cut_last=cut_last,
            top_sections=top_sections,
            summary_scope=summary_scope,
        )
        return self._run(calls.search(asked), timeout_s)

    def batch_search(
        self, queries: Sequence[SearchQuery], *, timeout_s: float | None = None
    ) -> list[SearchResult | HragError]:
        """Several searches in one call; each one's result or own error, in order."""
        return self._run(calls.batch_search(queries), timeout_s)

    def answer(
        self,
        query: SearchQuery,
        *,
        question: str = "",
        max_tokens: int | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[AnswerEvent]:
        """The passages a search finds, then a model's text about them in pieces, then its end.

        The search's text is the question, unless there is a `question`. Where the model
        fails, the end says so, and no error is raised. Closing the iterator ends the call.
        Waits for 120 s unless told otherwise.
        """
        call = calls.answer(AnswerQuery(query, question, max_tokens))
        with own_errors(self._is_closed):
            responses = self._stubs[call.service].Answer(
                call.request, timeout=timeout_s or ANSWER_TIMEOUT_S, metadata=self._metadata
            )
            try:
                yield from map(call.read, responses)
            finally:
                responses.cancel()

    def get_chunk(
        self,
        tenant_id: str,
        chunk_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> ChunkNode:
        """One chunk with the ids of its parent and children."""
        return self._run(calls.get_chunk(tenant_id, chunk_id, collection), timeout_s)

    def get_hierarchy(
        self,
        tenant_id: str,
        chunk_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        depth: int = 1,
        include_content: bool = False,
        timeout_s: float | None = None,
    ) -> Hierarchy:
        """A chunk with its ancestors, siblings and `depth` levels of descendants."""
        call = calls.get_hierarchy(tenant_id, chunk_id, collection, depth, include_content)
        return self._run(call, timeout_s)

    def server_info(self, *, timeout_s: float | None = None) -> ServerInfo:
        """The retriever's version, settings in force, embedder and limits."""
        return self._run(calls.server_info(), timeout_s)

    def ingest_many(
        self,
        tenant_id: str,
        documents: Iterable[Document],
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> Iterator[IngestResult | HragError]:
        """Streams documents; yields each one's result or its own error, in order.

        Documents are taken as the server asks for them. No deadline unless given.
        """
        failures: list[Exception] = []
        requests = _requests(tenant_id, documents, collection, failures)
        try:
            with own_errors(self._is_closed):
                responses = self._stubs["indexer"].IngestDocuments(
                    requests, timeout=timeout_s, metadata=self._metadata
                )
                try:
                    for response in responses:
                        yield from map(indexer.outcome_from, response.outcomes)
                finally:
                    responses.cancel()
        except HragError:
            if not failures:
                raise
        if failures:
            raise failures[0]

    def _run(self, call: calls.Call[Result], timeout_s: float | None) -> Result:
        send = getattr(self._stubs[call.service], call.method)
        with own_errors(self._is_closed):
            response = send(
                call.request, timeout=timeout_s or self._timeout_s, metadata=self._metadata
            )
        return call.read(response)

    def _is_closed(self) -> bool:
        return self._closed


def _requests(
    tenant_id: str, documents: Iterable[Document], collection: str, failures: list[Exception]
) -> Iterator[Any]:
    """gRPC swallows what its request iterator raises, so it is kept for the caller."""
    try:
        for document in documents:
            yield calls.ingest_many_request(tenant_id, document, collection)
    except Exception as error:
        failures.append(error)
