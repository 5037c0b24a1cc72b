"""A search: check, wait for the tenant's change, embed, open a snapshot, find, rerank, respond.

The engine does the search itself, from the filter to the passages, see
`hrag.engine.Snapshot.find`. A search opens one snapshot, except in SENTENCE_WINDOW, see
`sentence_window`.
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

_ERROR_BYTES = 2048  # At most, of an error in a batch's reply; its message has 1,000.

P = TypeVar("P")  # A passage, as a value or encoded.


@dataclass(frozen=True, slots=True)
class _Form(Generic[P]):
    """How passages come out: found by the engine in this form, or made from values."""

    find: Callable[[Snapshot, FindRequest], Found[P]]
    from_value: Callable[[Passage], P]


def _find(snapshot: Snapshot, request: FindRequest) -> Found[Passage]:
    return snapshot.find(request)


def _find_encoded(snapshot: Snapshot, request: FindRequest) -> Found[bytes]:
    """Encoded by the engine if it can, else from values."""
    if _encodes(snapshot):
        return snapshot.find_encoded(request, PASSAGE_FIELDS)
    found = snapshot.find(request)
    return Found(
        passages=tuple(map(encoded_passage, found.passages)),
        considered=found.considered,
        eligible_leaves=found.eligible_leaves,
        exact=found.exact,
        exhausted=found.exhausted,
        stages=found.stages,
        sections=found.sections,
    )


def _encodes(snapshot: Snapshot) -> TypeGuard[EncodingSnapshot]:
    """Cached for each class: isinstance would read every property of the snapshot."""
    return _class_encodes(type(snapshot))


@cache
def _class_encodes(snapshot_class: type) -> bool:
    return hasattr(snapshot_class, "find_encoded")


_VALUES: _Form[Passage] = _Form(_find, lambda passage: passage)
_ENCODED: _Form[bytes] = _Form(_find_encoded, encoded_passage)


@dataclass(frozen=True, slots=True)
class _Call:
    """What a call may still take: time, bytes of the reply, text to embed."""

    deadline: Deadline
    reply: ReplyLimit
    work: EmbeddingWork


class Search:
    """Answers queries; safe to call from several threads.

    `return_level` is what SMALL_TO_BIG returns where neither the query nor the
    collection says. With `allows_fallback`, HYBRID searches by words alone while the embedder
    is down. `reply` bounds what a search, or all of a batch, returns.
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

        A query that can go on by words alone waits at most `embedding_s` for its vector.

        Raises InvalidArgument, CollectionNotFound, EmbedderMismatch, SequenceNotReached,
        NoSummaries, NoVectors, NoLexicalIndex, RerankerNotConfigured, DeadlineExceeded,
        ReplyTooLarge, and as the embedder does.
        """
        result, passages = self._one(query, deadline, _VALUES, embedding_s)
        return replace(result, passages=passages)

    def encoded(self, query: SearchQuery, deadline: Deadline) -> EncodedResult:
        """Returns the same result with encoded passages; raises what `__call__` raises."""
        found = EncodedResult(*self._one(query, deadline, _ENCODED))
        self._reply.check(found.size_bytes, SEARCH_ADVICE)
        return found

    def batch(
        self, queries: Sequence[SearchQuery | HragError], deadline: Deadline
    ) -> list[EncodedResult | HragError]:
        """Returns each query's result or own error, in order; texts are embedded together.

        One whose result does not fit into what those before it have left of the reply has
        ReplyTooLarge. Raises InvalidArgument for no query and for too many, and for too much text.
        """
        check_batch(len(queries))
        work = EmbeddingWork()
        work.add_queries(each.text for each in queries if isinstance(each, SearchQuery))
        began = self._clock()
        prepared = [
            query if isinstance(query, HragError) else outcome_of(self._prepare, query, deadline)
            for query in queries
        ]
        embedded = self._embedding.all(prepared, deadline)
        embed: Stage = ("embed", began, self._clock())
        reply, outcomes = self._reply.after(_ERROR_BYTES * len(queries)), []
        for each in embedded:
            outcome = self._encoded_outcome(each, _Call(deadline, reply, work), embed)
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
        found = outcome_of(self._run, embedded, call, embed, _ENCODED)
        if isinstance(found, HragError):
            return found
        result = EncodedResult(*found)
        too_large = outcome_of(call.reply.check, result.size_bytes, SEARCH_ADVICE)
        return too_large or result

    def _one(
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
        """Refuses what can be refused before embedding; raises Suspended to wait for a change."""
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
        except VectorMissing:  # The collection was made anew, with vectors.
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
            outcome, passages = self._reranked(embedded, call, form)
        else:
            with self._snapshot(embedded, call.deadline, query.collection) as snapshot:
                outcome, passages = self._found(snapshot, embedded, call.reply, form)
        stages = (embed, *outcome.stages)
        seconds = stage_seconds(stages)
        metrics.search_finished(seconds.items())
        if outcome.fallback:
            is_dense = outcome.retrieval is Retrieval.DENSE
            metrics.search_fallback("lexical" if is_dense else "dense")
        tracing.add(stages)
        return result_of(query, outcome, seconds, self._clock() - embed[1]), passages

    def _reranked(
        self, embedded: EmbeddedQuery, call: _Call, form: _Form[P]
    ) -> tuple[SearchOutcome, tuple[P, ...]]:
        """The passages in the reranker's order; the search's own if there is no such order."""
        collection = embedded.prepared.query.collection
        with self._snapshot(embedded, call.deadline, collection) as snapshot:
            try:
                found = self._found(snapshot, self._rerank.widened(embedded), call.reply, _VALUES)
            except ReplyTooLarge as error:
                outcome, passages = self._found(snapshot, embedded, call.reply, form)
                return replace(outcome, rerank_failure=error.message), passages
        outcome, reranked = self._rerank(embedded, *found, call.deadline)
        if not outcome.rerank_failure:
            return outcome, tuple(map(form.from_value, reranked))
        with self._snapshot(embedded, call.deadline, collection) as snapshot:
            own, passages = self._found(snapshot, embedded, call.reply, form)
        stages = (*outcome.stages, *own.stages)
        return replace(own, stages=stages, rerank_failure=outcome.rerank_failure), passages

    def _request(
        self, snapshot: Snapshot, embedded: EmbeddedQuery, reply: ReplyLimit
    ) -> tuple[FindRequest, str]:
        """Returns the request to the snapshot, and why it asks fewer sources than the query."""
        level = returned_level(embedded.prepared.query, snapshot.settings, self._return_level)
        retrieval, fallback = embedded.sources(snapshot.settings)
        lowest_cosine = self._embedder.lowest_cosine
        return find_request(embedded, retrieval, level, lowest_cosine, reply), fallback

    def _found(
        self, snapshot: Snapshot, embedded: EmbeddedQuery, reply: ReplyLimit, form: _Form[P]
    ) -> tuple[SearchOutcome, tuple[P, ...]]:
        request, fallback = self._request(snapshot, embedded, reply)
        found = form.find(snapshot, request)
        outcome = SearchOutcome(
            found,
            found.exhausted,
            found.stages,
            snapshot.settings.tree.embedding_level,
            request.level,
            snapshot.sequence,
            request.retrieval,
            fallback,
        )
        return outcome, found.passages

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
                if embedded.prepared.embeds and not settings.dimension:  # It was made anew.
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
    """Whether the service embeds something for it: the query's text, or sentences."""
    return prepared.embeds or prepared.query.mode_or_default is SearchMode.SENTENCE_WINDOW
