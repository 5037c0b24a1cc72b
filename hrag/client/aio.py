"""The asyncio client, and the source of the synchronous one.

`sync.py` is generated from this module, and `sync_catalog.py` from `aio_catalog.py`, by
`make sync-client` (tests/support/sync_client.py), so each method has one signature, docstring and
body. They are committed, so that people can read and debug them; a test fails if they are out of
date.

What `grpc` and `grpc.aio` do differently is in `access` (channels) and `ingest_stream`.
"""

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any, Self

from hrag.client import calls
from hrag.client.aio_catalog import AsyncCatalog
from hrag.client.argument_checks import checked_timeout
from hrag.client.credentials import Access, File
from hrag.client.ingest_stream import AsyncDocuments, Outcome, aio_outcomes
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc
from hrag.values.answers import AnswerEvent, AnswerQuery
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.errors import HragError
from hrag.values.filters import Filter
from hrag.values.limits import DEFAULT_CANDIDATES, DEFAULT_COLLECTION
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
    """A client of both services.

    For asyncio: create and use it inside one event loop.

    Connects at the first call. Close it, or use it as a context manager.

    `indexer` and `retriever` are addresses as gRPC has them, such as `host:port`. `timeout_s`
    is the deadline of each call, in seconds, unless the call is given one. `token` is an API
    key or a JSON Web Token. `ca_file` holds the certificates of the authority that signed the
    services', and turns TLS on; `cert_file` and `key_file` are the client's own, for services
    that ask for them. Raises InvalidArgument for an address, a deadline, a token or a
    file that cannot be used, and for a token that would leave this machine without TLS.

    All calls raise subclasses of `hrag.errors.HragError`. Any call may raise:

    * InvalidArgument: `field` is missing, malformed or past its limit (then TooLarge).
    * Unauthenticated, PermissionDenied: the token is not valid, or not for this.
    * RateQuotaExceeded, TooBusy: try again after `retry_s` seconds.
    * DeadlineExceeded: there was no answer in time.
    * ServiceUnavailable: the service cannot be reached, or this client is closed.
    * StoreUnavailable: the service cannot open its store, or there is none yet.
    * InternalError: a fault of the service, whose log has the id in the message.

    Each method lists what else it raises. Calls that may safely run twice are retried, three
    times at most, while a service is unavailable.
    """

    def __init__(
        self,
        indexer: str = calls.INDEXER_ADDRESS,
        retriever: str = calls.RETRIEVER_ADDRESS,
        timeout_s: float = calls.TIMEOUT_S,
        *,
        token: str = "",
        ca_file: File | None = None,
        cert_file: File | None = None,
        key_file: File | None = None,
    ) -> None:
        self._timeout_s = checked_timeout(timeout_s)
        access = Access(token, ca_file, cert_file, key_file)
        self._channels = [
            access.aio_channel(address, calls.channel_options(address))
            for address in (indexer, retriever)
        ]
        self._stubs: dict[str, Any] = {
            "indexer": indexer_pb2_grpc.IndexerServiceStub(self._channels[0]),
            "retriever": retriever_pb2_grpc.RetrieverServiceStub(self._channels[1]),
        }
        self._metadata = access.metadata
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes both connections and cancels running calls. Safe to call twice."""
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

        `query` is a text of at most 32 KiB, or a vector with the collection's dimension; with a
        text, `vector` is used instead of its own. Quoted phrases and `+words` are required.

        * `mode`: what a passage is; None means SMALL_TO_BIG.
        * `limit`: most passages, 1 to 100; None means 5, in CONTEXT any number. There are fewer
          only if the result is `exhausted`, or for `token_budget`.
        * `retrieval`: search by words and vectors (HYBRID, for a text the default), or by one.
        * `return_level`: level of the passages; None takes the collection's, else the server's.
        * `candidates`: leaves to take from each source, 1 to 10,000; more are slower and find more.
        * `fusion`, `lexical_weight` (HYBRID): how both scores become one; 0 to 1, None means 0.5.
        * `neighbour_bonus`: how much the leaves beside one count, 0 to 1; None means 0.5 in
          CONTEXT and hybrid STANDARD, else 0. `max_per_document`: most passages of one; 0: any.
        * `aggregation`: how a passage's score comes from those of its matching leaves.
        * `token_budget`: most tokens of all passages; 0 means no bound, in CONTEXT 4,096. A
          passage that does not fit is left out or, with `cut_last`, cut after a sentence.
        * `min_sequence`: wait for this change, 30 s at most. `min_score`: the least score.
        * `merge_adjacent`, `keep_overlap`: join passages of one document that overlap or touch;
          return them whole. Else a passage leaves out what a better one has.
        * `filter`: search only documents that pass; see `hrag.filters`.
        * `merge_ratio` (AUTO_MERGE): share of a chunk's children that must match for it to
          replace them, over 0 and up to 1; None means 0.5.
        * `window_sentences` (SENTENCE_WINDOW): sentences on each side, 0 to 20; None means 3.
        * `top_sections`, `summary_scope` (SUMMARY_FIRST): sections to search, 1 to 1,000, None
          means 3; and by which summaries they are chosen.
        * `rerank`: the server's reranker, if it has one, orders the best; True requires one.

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

        Returns one result or error for each, in their order; one that fails does not affect
        the others.
        """
        return await self._run(calls.batch_search(queries), timeout_s)

    async def answer(
        self,
        query: SearchQuery,
        *,
        question: str = "",
        max_tokens: int | None = None,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[AnswerEvent]:
        """Searches, then streams a chat model's answer from the passages that were found.

        Yields the SearchResult, then the text in pieces (str) as the model writes it, then an
        AnswerEnd with the citations. `question` is what the model is asked; the search's text
        if it is empty. `max_tokens` bounds the answer; None means the server's own limit.

        If the model fails, AnswerEnd says so and nothing is raised. Closing the generator stops
        the model. `timeout_s` bounds the whole stream; None means 120 s. Raises what `search`
        raises and ChatNotConfigured, all before the first event.
        """
        call = calls.answer(AnswerQuery(query, question, max_tokens))
        timeout_s = checked_timeout(calls.ANSWER_TIMEOUT_S if timeout_s is None else timeout_s)
        with calls.translated_errors(self._is_closed):
            responses = self._stubs[call.service].Answer(
                call.request, timeout=timeout_s, metadata=self._metadata
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

        `depth` is at most 8; 0 means 1. Without `include_content` the chunks have no text.
        Raises CollectionNotFound, DocumentNotFound, ChunkNotFound.
        """
        call = calls.get_hierarchy(tenant_id, chunk_id, collection, depth, include_content)
        return await self._run(call, timeout_s)

    async def server_info(self, *, timeout_s: float | None = None) -> ServerInfo:
        """Returns the retriever's version, settings in force, models, limits and state."""
        return await self._run(calls.server_info(), timeout_s)

    def ingest_many(
        self,
        tenant_id: str,
        documents: AsyncDocuments,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Outcome]:
        """Streams documents; yields each one's result or its own error, in their order.

        Documents are taken from the iterable as the server accepts them, so that a corpus need
        not fit into memory: by the asyncio client in the event loop, one as the one before is
        answered; by the synchronous one in another thread, some ahead of the answers. Read the
        results while documents are sent; closing the generator ends the call. What was yielded
        is on disk. After a broken stream send all again: what is stored comes back UNCHANGED.

        `timeout_s` bounds the whole stream; None means no deadline, and it is never retried.
        Raises what `documents` raises, after the outcomes of what was sent before it.
        """
        if timeout_s is not None:
            timeout_s = checked_timeout(timeout_s)
        service = self._stubs["indexer"]
        send = partial(service.IngestDocuments, timeout=timeout_s, metadata=self._metadata)
        request_of = calls.ingest_many_requests(tenant_id, collection)
        return aio_outcomes(send, documents, request_of, self._is_closed)

    async def _run(self, call: calls.Call[calls.Result], timeout_s: float | None) -> calls.Result:
        send = getattr(self._stubs[call.service], call.method)
        timeout_s = checked_timeout(self._timeout_s if timeout_s is None else timeout_s)
        with calls.translated_errors(self._is_closed):
            response = await send(call.request, timeout=timeout_s, metadata=self._metadata)
        return call.read(response)

    def _is_closed(self) -> bool:
        return self._closed
