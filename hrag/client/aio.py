"""The asyncio client, from which the synchronous client is generated.

`make sync-client` (tests/support/sync_client.py) generates `sync.py` from this module, and
`sync_catalog.py` from `aio_catalog.py`. So a method has the same signature, docstring and body in
both clients, apart from `async` and `await`. The generated files are committed, so that people can
read and debug them; a test fails if they are out of date.

The code that differs between `grpc` and `grpc.aio` is in `credentials` (channels) and in
`ingest_stream`.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Self

from hrag.client import calls, originals
from hrag.client.aio_catalog import AsyncCatalog
from hrag.client.argument_checks import checked_history, checked_timeout
from hrag.client.credentials import ClientCredentials, File
from hrag.client.ingest_stream import AsyncDocuments, Outcome, aio_outcomes
from hrag.client.targets import targets
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc
from hrag.values.answers import AnswerEvent, AnswerQuery
from hrag.values.chunks import ChunkNode, Hierarchy, Span
from hrag.values.conversation import ConversationTurn
from hrag.values.documents import OriginalPart
from hrag.values.errors import HragError
from hrag.values.filters import Filter
from hrag.values.limits import DEFAULT_CANDIDATES, DEFAULT_COLLECTION
from hrag.values.page_images import DEFAULT_DPI, PageImage
from hrag.values.search import (
    Aggregation,
    FusionMethod,
    Retrieval,
    SearchMode,
    SearchQuery,
    SearchResult,
    SummaryScope,
)
from hrag.values.status import ServerInfo


class AsyncClient(AsyncCatalog):
    """A client of both services, the indexer and the retriever.

    For asyncio: create and use the client inside one event loop.

    The client connects at its first call. Close it, or use it as a context manager.

    `indexer` and `retriever` are gRPC addresses, for example `host:port`. An address that is None
    is read from the environment, `HRAG_INDEXER_ADDRESS` or `HRAG_RETRIEVER_ADDRESS`, when the
    client is made; without these variables, it is port 50051 or 50052 of this machine. `timeout_s`
    is the default deadline of a call, in seconds; the argument `timeout_s` of a method replaces it
    for one call.

    `token` is an API key or a JSON Web Token. If it is None, the client sends the token in
    `HRAG_TOKEN`, but never to an address that is passed as an argument. A token goes to another
    machine only with TLS, or with `insecure_plaintext`, which lets anybody on the network read it.

    `ca_file` contains the certificates of the authority that signed the services' certificates.
    `cert_file` and `key_file` are the certificate and the private key of this client, for
    services that require a client certificate. If any file is given, TLS is used.

    Raises InvalidArgument for an address, a deadline, a token or a file that cannot be used, and
    for a token that would be sent to another machine without TLS.

    All calls raise subclasses of `hrag.errors.HragError`. Any call may raise:

    * InvalidArgument: an argument is missing, malformed or exceeds its limit; the field `field`
      of the error names the argument. For an argument that exceeds its limit, the error is the
      subclass TooLarge.
    * Unauthenticated, PermissionDenied: the token is not valid, or does not permit this call.
    * RateQuotaExceeded, TooBusy: try again after `retry_s` seconds.
    * DeadlineExceeded: there was no answer in time.
    * ServiceUnavailable: the service cannot be reached, or this client is closed.
    * StoreUnavailable: the service cannot open its store, or the store does not exist yet.
    * InternalError: the service has a fault. The service's log has an entry with the request id
      that the message contains.

    Each method lists the other errors that it raises. If a service is unavailable, the client
    retries a call up to three times, unless it would do harm if the service ran the call twice.
    """

    def __init__(
        self,
        indexer: str | None = None,
        retriever: str | None = None,
        timeout_s: float = calls.TIMEOUT_S,
        *,
        token: str | None = None,
        ca_file: File | None = None,
        cert_file: File | None = None,
        key_file: File | None = None,
        insecure_plaintext: bool = False,
    ) -> None:
        self._timeout_s = checked_timeout(timeout_s)
        access = ClientCredentials("", ca_file, cert_file, key_file, insecure_plaintext)
        self._targets = targets(indexer, retriever, token, access)
        self._channels = [
            target.credentials.aio_channel(target.address, calls.channel_options(target.address))
            for target in self._targets.values()
        ]
        self._stubs: dict[str, Any] = {
            "indexer": indexer_pb2_grpc.IndexerServiceStub(self._channels[0]),
            "retriever": retriever_pb2_grpc.RetrieverServiceStub(self._channels[1]),
        }
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections to both services and cancels running calls. Safe to call twice."""
        self._closed = True
        for channel in self._channels:
            await channel.close()

    async def search(
        self,
        tenant_id: str,
        query: str | Sequence[float],
        *,
        collection: str = DEFAULT_COLLECTION,
        mode: SearchMode | None = None,
        limit: int | None = None,
        return_level: int | None = None,
        candidates: int = DEFAULT_CANDIDATES,
        aggregation: Aggregation = Aggregation.MAX,
        token_budget: int = 0,
        min_sequence: int = 0,
        merge_ratio: float | None = None,
        merge_adjacent: bool = False,
        keep_overlap: bool = False,
        min_score: float | None = None,
        filter: Filter | None = None,
        window_sentences: int | None = None,
        cut_last: bool = False,
        top_sections: int | None = None,
        summary_scope: SummaryScope | None = None,
        vector: Sequence[float] | None = None,
        retrieval: Retrieval | None = None,
        fusion: FusionMethod | None = None,
        lexical_weight: float | None = None,
        neighbour_bonus: float | None = None,
        max_per_document: int = 0,
        rerank: bool | None = None,
        timeout_s: float | None = None,
    ) -> SearchResult:
        """Returns the passages that best answer `query`, best first.

        `query` is a text of at most 32 KiB, or a vector with the collection's dimension. If `query`
        is a text and `vector` is given, the server does not embed the text: `vector` is the query's
        vector. Words written as `+word` are required, and so are the phrases of a query that is
        nothing but phrases in straight double quotes: only leaves whose text or titles contain all
        of them are found. A quoted phrase inside a sentence is preferred.

        If the name of a mode or a retrieval stands in parentheses after an option, the option is
        allowed only with it. For example, `fusion` (HYBRID) is allowed only if the retrieval is
        HYBRID.

        * `mode`: how passages are made from the matching leaves; None means SMALL_TO_BIG.
        * `limit`: maximum number of passages, 1 to 100; None means no maximum if the mode is
          CONTEXT, and 5 in the other modes. There are fewer passages only if no more are found
          (then the result is `exhausted`) or the `token_budget` does not allow more.
        * `retrieval`: HYBRID searches by words and by vectors, LEXICAL by words, DENSE by
          vectors. None means HYBRID if `query` is a text, and DENSE if `query` is a vector.
        * `return_level`: level of the passages; None means the level in the collection's settings
          or, if the collection sets no level, the level in the server's settings.
        * `candidates`: how many leaves the search by words and the search by vectors each find, 1
          to 10,000. With a larger number, a search finds more and is slower.
        * `fusion`, `lexical_weight` (HYBRID): `fusion` is how the score of the search by words
          (lexical) and the score of the search by vectors (dense) become one score.
          `lexical_weight` is the lexical score's share in this score, 0 to 1; None means 0.5.
        * `neighbour_bonus`: the score of each leaf is raised by this share, 0 to 1, of the best
          score among the leaf, the leaf before it and the leaf after it. None means 0.5 if the mode
          is CONTEXT, or if the mode is STANDARD or SENTENCE_WINDOW and the retrieval is HYBRID;
          otherwise None means 0.
        * `max_per_document`: maximum number of passages of one document; 0 means no maximum.
        * `aggregation`: how a passage's score is computed from the scores of its matching leaves.
        * `token_budget`: maximum number of tokens of all passages together; 0 means 4,096 if the
          mode is CONTEXT, and no maximum in the other modes. A passage that does not fit is left
          out; with `cut_last` it is cut at the end of a sentence.
        * `min_sequence`: the search waits until the change with this sequence number is visible;
          after 30 s it raises SequenceNotReached.
        * `min_score`: passages with a lower score are left out.
        * `merge_adjacent`: if True, passages of one document that overlap or touch become one
          passage.
        * `keep_overlap`: if True, each passage is returned whole. Otherwise a passage leaves out
          text that a better passage contains.
        * `filter`: a condition, made with `hrag.filters`; only documents that pass it are searched.
        * `merge_ratio` (AUTO_MERGE): share of a chunk's children that must match so that the
          chunk replaces its children, above 0 and at most 1; None means 0.5.
        * `window_sentences` (SENTENCE_WINDOW): number of sentences on each side of the sentence to
          cite, 0 to 20; None means 3.
        * `top_sections` (SUMMARY_FIRST): number of sections to search, 1 to 1,000; None: as many as
          their scores say.
        * `summary_scope` (SUMMARY_FIRST): whether the query is first compared with the summaries
          of documents or directly with the summaries of sections.
        * `rerank`: if True, the server's reranker orders the best chunks (in CONTEXT and
          SENTENCE_WINDOW, leaves) before they become passages; the search fails if the server has
          no reranker, and without a text. If False, no reranker is used. If None, a reranker is
          used if these conditions allow it.

        Raises CollectionNotFound, NoSummaries, NoVectors, NoLexicalIndex, SequenceNotReached and,
        for a text, EmbedderUnavailable, EmbedderRejected, EmbedderMismatch.
        """
        search_query = SearchQuery(
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
            keep_overlap=keep_overlap,
            min_score=min_score,
            filter=filter,
            window_sentences=window_sentences,
            cut_last=cut_last,
            top_sections=top_sections,
            summary_scope=summary_scope,
            vector=vector,
            retrieval=retrieval,
            fusion=fusion,
            lexical_weight=lexical_weight,
            neighbour_bonus=neighbour_bonus,
            max_per_document=max_per_document,
            rerank=rerank,
        )
        return await self._run(calls.search(search_query), timeout_s)

    async def batch_search(
        self, queries: Sequence[SearchQuery], *, timeout_s: float | None = None
    ) -> list[SearchResult | HragError]:
        """Runs 1 to 32 searches in one call, within one deadline.

        Returns one result or one error for each query, in the order of the queries. A search
        that fails does not affect the others.
        """
        return await self._run(calls.batch_search(queries), timeout_s)

    async def answer(
        self,
        query: SearchQuery,
        *,
        question: str = "",
        history: Sequence[ConversationTurn] = (),
        max_tokens: int | None = None,
        reasoning: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[AnswerEvent]:
        """Searches, then streams the answer that a chat model writes from the passages.

        Yields the SearchResult, then pieces of the answer's text (str) as the model writes them,
        then an AnswerEnd with the citations. `question` is the question for the model; if it is
        empty, the model answers the text of `query`. `max_tokens` is the maximum length of the
        answer in tokens; None means the server's limit. If `reasoning` is True, also yields what
        the model writes before it answers, as pieces of the class Reasoning.

        `history` has the turns of the conversation before the question, oldest first. The server
        then makes the text of `query` stand alone before it searches, unless `question` or a
        vector is set; `SearchResult.standalone_question` says what was searched for. A history
        has limits; `hrag.client.conversation.latest_turns` cuts a conversation to them.

        If the model fails, no error is raised: AnswerEnd contains the failure. Closing the
        generator stops the model. `timeout_s` is the deadline of the whole stream; None means two
        minutes. Raises ChatNotConfigured and the errors of `search`; these errors are raised before
        anything is yielded.
        """
        turns = checked_history(history)
        call = calls.answer(AnswerQuery(query, question, max_tokens, turns, reasoning))
        timeout_s = checked_timeout(calls.ANSWER_TIMEOUT_S if timeout_s is None else timeout_s)
        metadata = self._targets[call.service].metadata
        with self._translated_errors(call.service):
            responses = self._stubs[call.service].Answer(
                call.request, timeout=timeout_s, metadata=metadata
            )
            try:
                async for response in responses:
                    yield call.read(response)
            finally:
                responses.cancel()

    async def get_chunk(
        self,
        tenant_id: str,
        chunk_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> ChunkNode:
        """Returns one chunk with the ids of its parent and its children.

        Raises CollectionNotFound, DocumentNotFound, ChunkNotFound.
        """
        return await self._run(calls.get_chunk(tenant_id, chunk_id, collection), timeout_s)

    async def get_hierarchy(
        self,
        tenant_id: str,
        chunk_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        depth: int = 1,
        include_content: bool = False,
        timeout_s: float | None = None,
    ) -> Hierarchy:
        """Returns a chunk with its ancestors, its siblings and `depth` levels of descendants.

        `depth` is at most 8; the value 0 has the same effect as 1. Without `include_content`, only
        the chunk itself has a text; its ancestors, siblings and descendants are returned without
        their texts. Raises CollectionNotFound, DocumentNotFound, ChunkNotFound.
        """
        call = calls.get_hierarchy(tenant_id, chunk_id, collection, depth, include_content)
        return await self._run(call, timeout_s)

    async def get_original(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> OriginalPart:
        """Returns a document's original, the whole file from which the document was read.

        A large file is read by several calls; `timeout_s` is the deadline of all of them together.
        If the document is replaced meanwhile, the file is read again from the start. The file may
        be malicious, as whoever has sent it.

        Raises CollectionNotFound and DocumentNotFound. Raises OriginalNotFound if the file is not
        stored. Raises DocumentChanged if the document was replaced more than 10 times.
        """
        next_call = partial(originals.get_original, tenant_id, document_id, collection)
        read = await self._read_whole(originals.ReadOriginal(), next_call, timeout_s)
        return read.checked()

    async def get_original_part(
        self,
        tenant_id: str,
        document_id: str,
        start: int = 0,
        end: int = 0,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> OriginalPart:
        """Returns a part of a document's original, from the byte `start` to the byte `end`.

        If `end` is 0, the part extends to the end of the file. If the part is too long for one
        reply, it ends before `end`. Raises CollectionNotFound, DocumentNotFound, OriginalNotFound.
        """
        call = originals.get_original_part(tenant_id, document_id, collection, start, end)
        return await self._run(call, timeout_s)

    async def get_page_image(
        self,
        tenant_id: str,
        document_id: str,
        page: int,
        spans: Sequence[Span] = (),
        *,
        dpi: int = DEFAULT_DPI,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> PageImage:
        """Returns an image of a page of a PDF or a picture, with the places of parts of its text.

        `page` is the number of the page, and `spans` are parts of the text, for example the span of
        a passage's chunk. The boxes of the image are fractions of the page's width and height.
        `dpi` is the resolution, 36 to 300. The first boxes on a page whose text was recognised take
        seconds. If text of a span has no boxes, `boxes_note` says why.

        Raises CollectionNotFound, DocumentNotFound, OriginalNotFound, UnreadableDocument. Raises
        NotSupported for documents of other formats.
        """
        call = originals.get_page_image(tenant_id, document_id, collection, page, dpi, spans)
        return await self._run(call, timeout_s)

    async def server_info(self, *, timeout_s: float | None = None) -> ServerInfo:
        """Returns the retriever's version, current settings, models, limits and state."""
        return await self._run(calls.server_info(), timeout_s)

    def ingest_many(
        self,
        tenant_id: str,
        documents: AsyncDocuments,
        *,
        collection: str = DEFAULT_COLLECTION,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Outcome]:
        """Streams documents to the indexer; yields a result or an error for each document.

        The outcomes are in the order of the documents. Documents are read from the iterable as
        the server accepts them, so that a corpus need not fit into memory. The asyncio client
        reads documents in the event loop, and sends each document after the outcome of the
        previous document has arrived. The synchronous client reads documents in another thread,
        and sends several documents before their outcomes have arrived.

        Read the outcomes as they arrive: if no outcomes are read, soon no more documents are sent.
        Closing the generator ends the call. A document whose result was yielded is on disk. If the
        stream breaks, send all documents again; the outcome of a document that is already stored
        is UNCHANGED. With `validate_only`, the documents are read and checked, and nothing is
        stored.

        `timeout_s` is the deadline of the whole stream; None means no deadline. The stream is
        never retried. If `documents` raises an error, this generator first yields the outcomes
        of the documents that were sent, and then raises the same error.
        """
        if timeout_s is not None:
            timeout_s = checked_timeout(timeout_s)
        service, metadata = self._stubs["indexer"], self._targets["indexer"].metadata
        send = partial(service.IngestDocuments, timeout=timeout_s, metadata=metadata)
        request_of = calls.ingest_many_requests(tenant_id, collection, validate_only)
        translated_errors = partial(self._translated_errors, "indexer")
        return aio_outcomes(send, documents, request_of, translated_errors)

    async def _run(
        self, call: calls.ClientCall[calls.Result], timeout_s: float | None
    ) -> calls.Result:
        send = getattr(self._stubs[call.service], call.method)
        timeout_s = checked_timeout(self._timeout_s if timeout_s is None else timeout_s)
        metadata = self._targets[call.service].metadata
        with self._translated_errors(call.service):
            response = await send(call.request, timeout=timeout_s, metadata=metadata)
        return call.read(response)

    def _translated_errors(self, service: str) -> AbstractContextManager[None]:
        return calls.translated_errors(self._is_closed, self._targets[service])

    def _is_closed(self) -> bool:
        return self._closed
