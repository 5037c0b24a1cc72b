"""Runs a search, from the query to the result.

The steps are: check the query, wait for the tenant's change, embed the text, open a snapshot,
find passages, rerank them. The engine does the search itself, from the filter to the passages
(`hrag.engine.Snapshot.find`). A search opens one snapshot. There are three exceptions: rounds of
SENTENCE_WINDOW (see `sentence_window`), a reranker that fails, and a collection that was created
again while the query was embedded.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Generic, TypeGuard, TypeVar

from hrag.engine import EncodingSnapshot, FindRequest, Found, Reader, Snapshot
from hrag.models.embedding import Embedder
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.vector_checks import check_embedder
from hrag.observe import metrics, tracing
from hrag.observe.tracing import Stage
from hrag.values.deadline import Deadline
from hrag.values.errors import (
    CollectionNotFound,
    EmbedderMismatch,
    HragError,
    NoVectors,
    ReplyTooLarge,
    outcome_of,
)
from hrag.values.limits import check_batch
from hrag.values.reply_limit import SEARCH_ADVICE, UNLIMITED, ReplyLimit
from hrag.values.search import Passage, Retrieval, SearchMode, SearchQuery, SearchResult
from hrag.wire.passages import PASSAGE_FIELDS, encoded_passage
from hrag.wire.retriever import EncodedResult
from retriever_svc.freshness import require_sequence
from retriever_svc.known_collections import KnownCollections
from retriever_svc.modes import find_request, returned_level
from retriever_svc.prepared_query import (
    EmbeddedQuery,
    PreparedQuery,
    QueryEmbedding,
    VectorMissing,
    prepared_query,
)
from retriever_svc.query_checks import check_dimension, check_query
from retriever_svc.rerank_stage import RerankSetup, RerankStage
from retriever_svc.results import SearchOutcome, result_of, stage_seconds
from retriever_svc.sentence_window import SentenceWindowSearch
from retriever_svc.work_limit import EmbeddingWork

# An error takes at most this many bytes in a batch's reply; its message has at most 1,000.
_ERROR_BYTES = 2048

P = TypeVar("P")  # A passage, as a value or encoded.


@dataclass(frozen=True, slots=True)
class _Form(Generic[P]):
    """The form of returned passages: values or encoded messages.

    `find` makes the engine return this form. `from_value` converts a value to this form.
    """

    find: Callable[[Snapshot, FindRequest], Found[P]]
    from_value: Callable[[Passage], P]


def _find(snapshot: Snapshot, request: FindRequest) -> Found[Passage]:
    return snapshot.find(request)


def _find_encoded(snapshot: Snapshot, request: FindRequest) -> Found[bytes]:
    """Returns encoded passages. If the engine cannot encode, they are encoded from values."""
    if _encodes(snapshot):
        return snapshot.find_encoded(request, PASSAGE_FIELDS)
    result = snapshot.find(request)
    return Found(
        passages=tuple(map(encoded_passage, result.passages)),
        considered=result.considered,
        eligible_leaves=result.eligible_leaves,
        exact=result.exact,
        exhausted=result.exhausted,
        stages=result.stages,
        sections=result.sections,
    )


def _encodes(snapshot: Snapshot) -> TypeGuard[EncodingSnapshot]:
    """Returns True if the engine encodes passages.

    The answer is cached for each class: isinstance would read every property of the snapshot.
    """
    return _class_encodes(type(snapshot))


@cache
def _class_encodes(snapshot_class: type) -> bool:
    return hasattr(snapshot_class, "find_encoded")


_VALUES: _Form[Passage] = _Form(_find, lambda passage: passage)
_ENCODED: _Form[bytes] = _Form(_find_encoded, encoded_passage)


@dataclass(frozen=True, slots=True)
class _Call:
    """The limits of a call: its time, the bytes of its reply, the text that it may embed."""

    deadline: Deadline
    reply: ReplyLimit
    work: EmbeddingWork


class Search:
    """Answers queries. Safe to call from several threads.

    `return_level` is the level of passages if neither the query nor the collection sets one.
    Modes that return leaves ignore it. With `allows_fallback`, HYBRID searches by words alone
    while the embedder is down. `reply` limits the bytes that a search, or a whole batch, returns.
    """

    def __init__(
        self,
        reader: Reader,
        embedder: Embedder,
        queries: CachedQueries,
        sentences: CachedQueries,
        return_level: int,
        *,
        allows_fallback: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        reranking: RerankSetup | None = None,
        reply: ReplyLimit = UNLIMITED,
    ) -> None:
        self._reader = reader
        self._embedder = embedder
        self._embedding = QueryEmbedding(queries, allows_fallback=allows_fallback)
        self._known_collections = KnownCollections(reader, embedder.name)
        self._return_level = return_level
        self._clock = clock
        self._find_windows = SentenceWindowSearch(sentences, clock)
        self._rerank = RerankStage(reranking, clock)
        self._reply = reply

    def __call__(
        self, query: SearchQuery, deadline: Deadline, embedding_s: float = math.inf
    ) -> SearchResult:
        """Returns the passages that answer a query best, best first.

        A query that can be answered by words alone waits at most `embedding_s` seconds for its
        vector.

        Raises InvalidArgument, CollectionNotFound, EmbedderMismatch, SequenceNotReached,
        NoSummaries, NoVectors, NoLexicalIndex, RerankerNotConfigured, DeadlineExceeded,
        ReplyTooLarge, and what the embedder raises.
        """
        result, passages = self._embed_and_run(query, deadline, _VALUES, embedding_s)
        return replace(result, passages=passages)

    def encoded(self, query: SearchQuery, deadline: Deadline) -> EncodedResult:
        """Returns the same result with encoded passages; raises what `__call__` raises."""
        result = EncodedResult(*self._embed_and_run(query, deadline, _ENCODED))
        self._reply.check(result.size_bytes, SEARCH_ADVICE)
        return result

    def batch(
        self, queries: Sequence[SearchQuery | HragError], deadline: Deadline
    ) -> list[EncodedResult | HragError]:
        """Returns each query's result or its error, in order. Texts are embedded together.

        A query gets ReplyTooLarge if the results before it leave too few bytes of the reply.
        Raises InvalidArgument for an empty batch or too many queries, and TooLarge for too much
        text.
        """
        check_batch(len(queries))
        work = EmbeddingWork()
        work.add_queries(query.text for query in queries if isinstance(query, SearchQuery))
        began = self._clock()
        prepared = [
            query if isinstance(query, HragError) else outcome_of(self._prepare, query, deadline)
            for query in queries
        ]
        embedded = self._embedding.all(prepared, deadline)
        embed: Stage = ("embed", began, self._clock())
        reply, outcomes = self._reply.after(_ERROR_BYTES * len(queries)), []
        for query in embedded:
            outcome = self._encoded_outcome(query, _Call(deadline, reply, work), embed)
            if isinstance(outcome, EncodedResult):
                reply = reply.after(outcome.size_bytes)
            outcomes.append(outcome)
        return outcomes

    def _encoded_outcome(
        self, embedded: EmbeddedQuery | HragError, call: _Call, embed: Stage
    ) -> EncodedResult | HragError:
        """Returns the result or error of one query of a batch."""
        if isinstance(embedded, HragError):
            return embedded
        outcome = outcome_of(self._run, embedded, call, embed, _ENCODED)
        if isinstance(outcome, HragError):
            return outcome
        result = EncodedResult(*outcome)
        too_large = outcome_of(call.reply.check, result.size_bytes, SEARCH_ADVICE)
        return too_large or result

    def _embed_and_run(
        self,
        query: SearchQuery,
        deadline: Deadline,
        form: _Form[P],
        embedding_s: float = math.inf,
    ) -> tuple[SearchResult, tuple[P, ...]]:
        began = self._clock()
        prepared = self._prepare(query, deadline)
        embedded = self._embedding.one(prepared, deadline, embedding_s)
        call = _Call(deadline, self._reply, EmbeddingWork())
        return self._run(embedded, call, ("embed", began, self._clock()), form)

    def _prepare(self, query: SearchQuery, deadline: Deadline) -> PreparedQuery:
        """Checks and parses a query before it is embedded. Raises Suspended if it must wait."""
        check_query(query)
        self._rerank.check(query)
        prepared = prepared_query(query)
        require_sequence(self._reader, query.tenant_id, query.min_sequence, deadline)
        if prepared.embeds or query.mode_or_default is SearchMode.SENTENCE_WINDOW:
            has_vectors = self._known_collections.have_vectors(query.tenant_id, query.collection)
            prepared = replace(prepared, embeds=prepared.embeds and has_vectors)
        return prepared

    def _run(
        self, embedded: EmbeddedQuery, call: _Call, embed: Stage, form: _Form[P]
    ) -> tuple[SearchResult, tuple[P, ...]]:
        """Returns the result without its passages, and the passages."""
        try:
            return self._run_once(embedded, call, embed, form)
        except VectorMissing:  # The collection was deleted and created again, with vectors.
            query = embedded.prepared.query
            self._known_collections.forget(query.tenant_id, query.collection)
            again = self._embedding.one(replace(embedded.prepared, embeds=True), call.deadline)
            return self._run_once(again, call, embed, form)

    def _run_once(
        self, embedded: EmbeddedQuery, call: _Call, embed: Stage, form: _Form[P]
    ) -> tuple[SearchResult, tuple[P, ...]]:
        call.deadline.check("embedding")
        query = embedded.prepared.query
        if query.mode_or_default is SearchMode.SENTENCE_WINDOW:
            outcome, windows = self._find_windows(
                embedded,
                partial(self._request, reply=call.reply),
                partial(self._snapshot, embedded, call.deadline),
                call.deadline,
                call.work,
            )
            passages = tuple(map(form.from_value, windows))
        elif self._rerank.applies_to(query):
            outcome, passages = self._find_and_rerank(embedded, call, form)
        else:
            with self._snapshot(embedded, call.deadline, query.collection) as snapshot:
                outcome, passages = self._find_passages(snapshot, embedded, call.reply, form)
        stages = (embed, *outcome.stages)
        seconds = stage_seconds(stages)
        metrics.search_finished(seconds.items())
        if outcome.fallback:
            is_dense = outcome.retrieval is Retrieval.DENSE
            metrics.search_fallback("lexical" if is_dense else "dense")
        tracing.add(stages)
        return result_of(query, outcome, seconds, self._clock() - embed[1]), passages

    def _find_and_rerank(
        self, embedded: EmbeddedQuery, call: _Call, form: _Form[P]
    ) -> tuple[SearchOutcome, tuple[P, ...]]:
        """Returns passages in the reranker's order, or in the search's order if that fails."""
        collection = embedded.prepared.query.collection
        with self._snapshot(embedded, call.deadline, collection) as snapshot:
            try:
                widened = self._rerank.widened(embedded)
                candidates = self._find_passages(snapshot, widened, call.reply, _VALUES)
            except ReplyTooLarge as error:
                outcome, passages = self._find_passages(snapshot, embedded, call.reply, form)
                return replace(outcome, rerank_failure=error.message), passages
        outcome, reranked = self._rerank(embedded, *candidates, call.deadline)
        if not outcome.rerank_failure:
            return outcome, tuple(map(form.from_value, reranked))
        with self._snapshot(embedded, call.deadline, collection) as snapshot:
            unranked, passages = self._find_passages(snapshot, embedded, call.reply, form)
        stages = (*outcome.stages, *unranked.stages)
        return replace(unranked, stages=stages, rerank_failure=outcome.rerank_failure), passages

    def _request(
        self, snapshot: Snapshot, embedded: EmbeddedQuery, reply: ReplyLimit
    ) -> tuple[FindRequest, str]:
        """Returns the request, and why it has fewer sources than the query asks for, or ""."""
        level = returned_level(embedded.prepared.query, snapshot.settings, self._return_level)
        retrieval, fallback = embedded.sources(snapshot.settings)
        lowest_cosine = self._embedder.lowest_cosine
        return find_request(embedded, retrieval, level, lowest_cosine, reply), fallback

    def _find_passages(
        self, snapshot: Snapshot, embedded: EmbeddedQuery, reply: ReplyLimit, form: _Form[P]
    ) -> tuple[SearchOutcome, tuple[P, ...]]:
        request, fallback = self._request(snapshot, embedded, reply)
        result = form.find(snapshot, request)
        outcome = SearchOutcome(
            result,
            result.exhausted,
            result.stages,
            snapshot.settings.tree.embedding_level,
            request.level,
            snapshot.sequence,
            request.retrieval,
            fallback,
        )
        return outcome, result.passages

    @contextmanager
    def _snapshot(
        self, embedded: EmbeddedQuery, deadline: Deadline, collection: str
    ) -> Iterator[Snapshot]:
        """Opens a snapshot of the collection and checks the query's vector against it."""
        query, vector = embedded.prepared.query, embedded.vector
        try:
            with self._reader.snapshot(
                query.tenant_id,
                collection,
                summaries=query.mode_or_default is SearchMode.SUMMARY_FIRST,
                deadline=deadline,
            ) as snapshot:
                settings = snapshot.settings
                if embedded.prepared.embeds and not settings.dimension:  # It was created again.
                    self._known_collections.forget(query.tenant_id, query.collection)
                if vector is not None and settings.dimension:
                    if _needs_embedder(embedded.prepared):
                        check_embedder(settings, self._embedder.name, len(vector))
                    check_dimension(vector, settings)
                yield snapshot
        except (CollectionNotFound, EmbedderMismatch, NoVectors):
            self._known_collections.forget(query.tenant_id, query.collection)
            raise


def _needs_embedder(prepared: PreparedQuery) -> bool:
    """Returns True if the service embeds the query's text, or sentences for it."""
    return prepared.embeds or prepared.query.mode_or_default is SearchMode.SENTENCE_WINDOW
