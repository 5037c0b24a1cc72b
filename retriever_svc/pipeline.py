"""A search: check, wait for the tenant's change, embed, open a snapshot, find, rerank, respond.

The engine does the search itself, from the filter to the passages, see
`hrag.engine.Snapshot.find`. A search opens one snapshot, except in SENTENCE_WINDOW, see
`sentence_window`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Generic, TypeGuard, TypeVar

from hrag import metrics, tracing
from hrag.deadline import Deadline
from hrag.embedding import Embedder
from hrag.embedding.cache import CachedQueries
from hrag.embedding.checks import check_embedder
from hrag.engine import EncodingSnapshot, FindRequest, Found, Reader, Snapshot, Vector
from hrag.errors import CollectionNotFound, EmbedderMismatch, HragError, outcome_of
from hrag.tracing import Stage
from hrag.types import Passage, SearchMode, SearchQuery, SearchResult, check_batch
from hrag.wire.retriever import EncodedResult, described_document, encoded_passage
from retriever_svc.checks import check_dimension, check_query
from retriever_svc.freshness import MAX_WAIT_S, wait_for_sequence
from retriever_svc.known_collections import KnownCollections
from retriever_svc.modes import find_request, returned_level
from retriever_svc.query_vectors import query_vector, query_vectors
from retriever_svc.rerank_stage import RerankSetup, RerankStage
from retriever_svc.results import SearchOutcome, result_of, stage_seconds
from retriever_svc.sentence_window import SentenceWindowSearch

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
        return snapshot.find_encoded(request, described_document)
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


class Search:
    """Answers queries; safe to call from several threads.

    `return_level` is what SMALL_TO_BIG returns where neither the query nor the
    collection says.
    """

    def __init__(
        self,
        reader: Reader,
        embedder: Embedder,
        queries: CachedQueries,
        sentences: CachedQueries,
        return_level: int,
        clock: Callable[[], float] = time.perf_counter,
        reranking: RerankSetup | None = None,
    ) -> None:
        self._reader = reader
        self._embedder = embedder
        self._queries = queries
        self._known_collections = KnownCollections(reader, embedder.name)
        self._return_level = return_level
        self._clock = clock
        self._find_windows = SentenceWindowSearch(sentences, clock)
        self._rerank = RerankStage(reranking, clock)

    def __call__(self, query: SearchQuery, deadline: Deadline) -> SearchResult:
        """Returns the passages that answer a query best, best first.

        Raises InvalidArgument, CollectionNotFound, EmbedderMismatch, SequenceNotReached,
        NoSummaries, RerankerNotConfigured, DeadlineExceeded, and as the embedder does.
        """
        result, passages = self._one(query, deadline, _VALUES)
        return replace(result, passages=passages)

    def encoded(self, query: SearchQuery, deadline: Deadline) -> EncodedResult:
        """Returns the same result with encoded passages; raises what `__call__` raises."""
        return EncodedResult(*self._one(query, deadline, _ENCODED))

    def batch(
        self, queries: Sequence[SearchQuery | HragError], deadline: Deadline
    ) -> list[EncodedResult | HragError]:
        """Returns each query's result or own error, in order; texts are embedded together.

        Raises InvalidArgument for no query and for too many.
        """
        check_batch(len(queries))
        began = self._clock()
        wait_deadline = deadline.within(MAX_WAIT_S)  # One wait for the whole batch.
        prepared = [
            query
            if isinstance(query, HragError)
            else outcome_of(self._prepare, query, wait_deadline)
            for query in queries
        ]
        vectors = query_vectors(prepared, self._queries, deadline)
        embed: Stage = ("embed", began, self._clock())
        return [
            self._encoded_outcome(query, vector, embed, deadline)
            for query, vector in zip(prepared, vectors, strict=True)
        ]

    def _encoded_outcome(
        self,
        query: SearchQuery | HragError,
        vector: Vector | HragError,
        embed: Stage,
        deadline: Deadline,
    ) -> EncodedResult | HragError:
        """Returns the result or error of one query of a batch."""
        if isinstance(query, HragError):
            return query
        if isinstance(vector, HragError):
            return vector
        found = outcome_of(self._run, query, vector, embed, deadline, _ENCODED)
        return found if isinstance(found, HragError) else EncodedResult(*found)

    def _one(
        self, query: SearchQuery, deadline: Deadline, form: _Form[P]
    ) -> tuple[SearchResult, tuple[P, ...]]:
        began = self._clock()
        self._prepare(query, deadline.within(MAX_WAIT_S))
        vector = query_vector(query, self._queries, deadline)
        return self._run(query, vector, ("embed", began, self._clock()), deadline, form)

    def _prepare(self, query: SearchQuery, wait_deadline: Deadline) -> SearchQuery:
        """Refuses what can be refused before embedding, and waits for the tenant's change."""
        check_query(query)
        self._rerank.check(query)
        wait_for_sequence(self._reader, query.tenant_id, query.min_sequence, wait_deadline)
        if _needs_embedder(query):
            self._known_collections.check(query.tenant_id, query.collection)
        return query

    def _run(
        self,
        query: SearchQuery,
        vector: Vector,
        embed: Stage,
        deadline: Deadline,
        form: _Form[P],
    ) -> tuple[SearchResult, tuple[P, ...]]:
        """Returns the result without its passages, and the passages."""
        deadline.check("embedding")
        open_snapshot = partial(self._snapshot, query, vector, deadline)
        if query.mode is SearchMode.SENTENCE_WINDOW:
            outcome, windows = self._find_windows(query, vector, open_snapshot, deadline)
            passages = tuple(map(form.from_value, windows))
        elif self._rerank.applies_to(query):
            with open_snapshot() as snapshot:
                found = self._found(snapshot, self._rerank.widened(query), vector, _VALUES)
            outcome, reranked = self._rerank(query, *found, deadline)
            passages = tuple(map(form.from_value, reranked))
        else:
            with open_snapshot() as snapshot:
                outcome, passages = self._found(snapshot, query, vector, form)
        stages = (embed, *outcome.stages)
        seconds = stage_seconds(stages)
        metrics.search_finished(seconds.items())
        tracing.add(stages)
        return result_of(query, outcome, seconds, self._clock() - embed[1]), passages

    def _found(
        self, snapshot: Snapshot, query: SearchQuery, vector: Vector, form: _Form[P]
    ) -> tuple[SearchOutcome, tuple[P, ...]]:
        settings = snapshot.settings
        level = returned_level(query, settings, self._return_level)
        found = form.find(snapshot, find_request(query, vector, level))
        outcome = SearchOutcome(
            found,
            found.exhausted,
            found.stages,
            settings.tree.embedding_level,
            level,
            snapshot.sequence,
        )
        return outcome, found.passages

    @contextmanager
    def _snapshot(
        self, query: SearchQuery, vector: Vector, deadline: Deadline
    ) -> Iterator[Snapshot]:
        """Opens a snapshot of the query's collection and checks the vector against it."""
        try:
            with self._reader.snapshot(
                query.tenant_id,
                query.collection,
                summaries=query.mode is SearchMode.SUMMARY_FIRST,
                deadline=deadline,
            ) as snapshot:
                if _needs_embedder(query):
                    check_embedder(snapshot.settings, self._embedder.name, len(vector))
                check_dimension(vector, snapshot.settings)
                yield snapshot
        except (CollectionNotFound, EmbedderMismatch):
            self._known_collections.forget(query.tenant_id, query.collection)
            raise


def _needs_embedder(query: SearchQuery) -> bool:
    """Whether the service embeds something for it: the query's text, or sentences."""
    return isinstance(query.query, str) or query.mode is SearchMode.SENTENCE_WINDOW
