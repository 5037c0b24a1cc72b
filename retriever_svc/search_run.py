"""Runs the search of one query.

A SearchRun is created for each query. It parses the query's text, then stores the query's vector or
the reason why the query has no vector. The engine does the search itself, from the filter to the
passages (`hrag.engine.Snapshot.find`).

A collection has two sources of candidates: its lexical index and its vectors. Which sources are
searched is decided in two steps. Before the text is embedded, the query's options decide which
sources are wanted. Once the snapshot is open, the collection decides, because it may lack one of
these sources. If one source cannot be used, HYBRID searches only the other source, and the result
contains the reason.

A search opens one snapshot. It opens a further snapshot in two cases: a reranker has scored the
best chunks, or the collection was created again while the query was embedded. No snapshot is open
while a model works, because a read transaction must not wait for a model.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from hrag.engine import (
    Encoded,
    FindRequest,
    FindResult,
    PassageForm,
    RankedChunks,
    Reader,
    ResultForm,
    Snapshot,
    Vector,
)
from hrag.models.embedding.vector_checks import check_embedder
from hrag.observe import metrics, tracing
from hrag.observe.tracing import Stage
from hrag.text.analysis import query_syntax
from hrag.values.collections import NO_EMBEDDER, CollectionSettings
from hrag.values.deadline import Deadline
from hrag.values.errors import (
    CollectionNotFound,
    EmbedderMismatch,
    HragError,
    InvalidArgument,
    NoLexicalIndex,
    NoVectors,
    ReplyTooLarge,
    RerankerRejected,
    RerankerUnavailable,
)
from hrag.values.quick_creation import created
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.search import (
    Retrieval,
    SearchMode,
    SearchPlan,
    SearchQuery,
    SearchResult,
)
from hrag.wire.passages import PASSAGE_FIELDS, encoded_passage
from retriever_svc.known_collections import KnownCollections
from retriever_svc.query_options import find_request, returned_level
from retriever_svc.rerank_stage import RerankStage, reranked_request
from retriever_svc.search_models import SearchModel, SearchModels
from retriever_svc.search_timings import stage_seconds, timings

P = TypeVar("P")  # The type of the returned passages: Passage, or bytes if they are encoded.

ENCODED = Encoded(PASSAGE_FIELDS, encoded_passage)

_NO_TEXT = query_syntax.ParsedQuery("")
# These errors may mean that the cached entry of the collection (`KnownCollections`) is out of date.
_COLLECTION_ERRORS = (CollectionNotFound, EmbedderMismatch, NoVectors)


class VectorMissing(Exception):
    """Raised if a query has no vector, but its collection has vectors.

    The query was not embedded, or was embedded with another embedder, because of an outdated entry
    in `KnownCollections`.
    """


@dataclass(frozen=True, slots=True)
class SearchParts:
    """The reader, the models, the caches and the clock that all searches share.

    `models` embeds queries. `return_level` is the level of passages if neither the query nor the
    collection sets one.
    """

    reader: Reader
    models: SearchModels
    known_collections: KnownCollections
    rerank: RerankStage
    return_level: int
    clock: Callable[[], float]


class SearchRun:
    """Searches for one query. `check_query` must have checked the query.

    `text` is the query's text without quotes and plus signs. `retrieval` says whether the query
    asks for words, vectors or both. `embeds` is True if the text has to be embedded. `embedder` is
    the name of the collection's embedder; "" if it is not known, which means the current embedder.

    `QueryVectors` sets three more attributes. `vector` is the query's unit vector, or None.
    `failure` is the error of the embedder if a HYBRID query has no vector and may be answered by
    words alone. `error` is the error because of which the query cannot be answered.
    """

    def __init__(self, parts: SearchParts, query: SearchQuery, deadline: Deadline) -> None:
        """Parses the query's text.

        Raises InvalidArgument if the text marks too many words and phrases as required.
        """
        text = query.text
        self._parsed = query_syntax.parse(text) if text else _NO_TEXT
        self.query = query
        self.mode = query.mode_or_default
        self.text = self._parsed.text
        self.retrieval = query.retrieval or (Retrieval.HYBRID if text else Retrieval.DENSE)
        is_dense = self.retrieval is not Retrieval.LEXICAL
        self.embeds = self._needs_vector = is_dense and bool(text) and query.vector is None
        self.embedder = ""
        self.vector: Vector | None = None
        self.failure: HragError | None = None
        self.error: HragError | None = None
        self._parts = parts
        self._deadline = deadline
        self._reply = UNLIMITED
        self._stages: list[Stage] = []
        # `_request` sets these attributes once a snapshot is open.
        self._matched_level = self._returned_level = self._sequence = 0
        self._searched = self.retrieval
        self._fallback = ""
        # `_find_reranked` sets these attributes.
        self._is_reranked = False
        self._rerank_failure = ""

    def choose_model(self) -> None:
        """Sets `embedder` to that of the collection, and `embeds` to False if it has no vectors.

        Does nothing if the query needs no model. Raises CollectionNotFound or EmbedderMismatch.
        """
        if not self._needs_vector:
            return
        known, query = self._parts.known_collections, self.query
        self.embedder = known.embedder_of(query.tenant_id, query.collection)
        self.embeds = self._needs_vector and self.embedder != NO_EMBEDDER

    @property
    def _model(self) -> SearchModel:
        return self._parts.models.named(self.embedder)

    def result(self, form: PassageForm[P], reply: ReplyLimit, embedding: Stage) -> SearchResult[P]:
        """Searches and returns the result, with its passages in `form`.

        `QueryVectors` must have been called for this search. `embedding` has the start and end time
        of the embedding. Raises `self.error` if it is set. Raises ReplyTooLarge if the passages are
        larger than `reply` allows. Also raises CollectionNotFound, EmbedderMismatch, NoSummaries,
        NoVectors, NoLexicalIndex, InvalidArgument, DeadlineExceeded, Cancelled, and the errors of
        the embedder.
        """
        self._reply, self._stages = reply, [embedding]
        try:
            engine_result = self._find(form)
        except VectorMissing:
            # The collection had no vectors, or had the service's other embedder, when the query was
            # checked. Meanwhile it was created again, or was embedded again. So the query is
            # embedded with the collection's embedder now.
            self._forget_collection()
            self.choose_model()
            self._stages = [embedding]
            self._parts.models.embed([self], self._deadline)
            engine_result = self._find(form)
        seconds = stage_seconds(self._stages)
        metrics.search_finished(seconds.items())
        if self._fallback:
            is_dense = self._searched is Retrieval.DENSE
            metrics.search_fallback("lexical" if is_dense else "dense")
        tracing.add(self._stages)
        return created(
            SearchResult,
            {
                "passages": engine_result.passages,
                "mode": self.mode,
                "matched_at_level": self._matched_level,
                "returned_at_level": self._returned_level,
                "candidates_considered": engine_result.considered,
                "exhausted": engine_result.exhausted,
                "sequence": self._sequence,
                "timings": timings(seconds, self._parts.clock() - embedding[1]),
                "plan": SearchPlan.SCAN if engine_result.exact else SearchPlan.INDEX,
                "eligible_leaves": engine_result.eligible_leaves,
                "sections": engine_result.sections,
                "retrieval": self._searched,
                "fallback": self._fallback,
                "reranked": self._is_reranked,
                "rerank_failure": self._rerank_failure,
            },
        )

    def _find(self, form: PassageForm[P]) -> FindResult[P]:
        """Returns the passages that the query asks for, in `form`.

        They are reranked if the query has to be reranked. Raises `self.error` if it is set.
        """
        if self.error is not None:
            raise self.error
        self._deadline.check("embedding")
        try:
            if self._parts.rerank.applies_to(self.query):
                return self._find_reranked(form)
            with self._open(self.query.collection) as snapshot:
                engine_result = snapshot.find(self._request(snapshot), form)
        except _COLLECTION_ERRORS:
            self._forget_collection()
            raise
        self._stages += engine_result.stages
        return engine_result

    def _find_reranked(self, form: PassageForm[P]) -> FindResult[P]:
        """Returns passages in the reranker's order, or in the search's order if reranking fails.

        Both snapshots are of the same collection, even if the query names an alias and the alias is
        set to another collection meanwhile.
        """
        rerank, clock = self._parts.rerank, self._parts.clock
        self._is_reranked, self._rerank_failure = False, ""
        with self._open(self.query.collection) as snapshot:
            collection, request = snapshot.name, self._request(snapshot)
            try:
                chunks = self._search(snapshot, rerank.chunks_request(request), RankedChunks())
            except ReplyTooLarge as error:
                self._rerank_failure = error.message
                return self._search(snapshot, request, form)
        began, scores = clock(), {}
        try:
            scores = rerank.scores(self.text, chunks.passages, self._deadline)
        except (RerankerUnavailable, RerankerRejected) as error:
            self._rerank_failure = error.message
        self._stages.append(("rerank", began, clock()))
        self._is_reranked = bool(scores)
        with self._open(collection) as snapshot:
            request = self._request(snapshot)
            if scores:
                request = reranked_request(request, chunks, scores)
            return self._search(snapshot, request, form)

    def _open(self, collection: str) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot of the tenant's collection with the name `collection`."""
        return self._parts.reader.snapshot(
            self.query.tenant_id,
            collection,
            summaries=self.mode is SearchMode.SUMMARY_FIRST,
            deadline=self._deadline,
        )

    def _request(self, snapshot: Snapshot) -> FindRequest:
        """Checks that the query fits the collection's settings.

        Returns the `FindRequest` for the engine.
        """
        query, settings = self.query, snapshot.settings
        self._check_vector(settings)
        level = returned_level(query, settings, self._parts.return_level)
        retrieval, self._fallback = self.sources(settings)
        self._matched_level, self._returned_level = settings.tree.embedding_level, level
        self._searched, self._sequence = retrieval, snapshot.sequence
        return find_request(
            query,
            parsed=self._parsed,
            vector=self.vector,
            retrieval=retrieval,
            level=level,
            lowest_cosine=self._parts.models.named(settings.embedder).embedder.lowest_cosine,
            reply=self._reply,
        )

    def _check_vector(self, settings: CollectionSettings) -> None:
        """Raises an error if the query's vector cannot be compared with the collection's vectors.

        Raises VectorMissing if the service's other embedder made the collection's vectors,
        EmbedderMismatch if an embedder made them that the service does not have, and
        InvalidArgument if their dimension is different.
        """
        # The query was embedded, so the collection had vectors when the query was checked. If the
        # collection was created again without vectors since, its cached entry is out of date.
        if self.embeds and not settings.dimension:
            self._forget_collection()
        if self.vector is None or not settings.dimension:
            return
        if self.embeds:
            if self._parts.models.of(settings) is not self._model:
                raise VectorMissing
            check_embedder(settings, self._model.embedder.name, len(self.vector))
        _check_dimension(self.vector, settings)

    def sources(self, settings: CollectionSettings) -> tuple[Retrieval, str]:
        """Returns whether words, vectors or both are searched, and the reason for a fallback.

        A fallback means that HYBRID searches only words because vectors cannot be searched, or only
        vectors because words cannot be searched. Without a fallback, the reason is "". In a
        collection without vectors, HYBRID means LEXICAL, which is not a fallback.

        Raises NoVectors if the query needs vectors and the collection has no vectors, and
        NoLexicalIndex if the query needs a lexical index and the collection has none. Raises
        `failure` if the text could not be embedded and the collection has no lexical index. Raises
        VectorMissing if the text was not embedded, but the collection has vectors.
        """
        retrieval = self.retrieval
        if retrieval is Retrieval.LEXICAL or (
            retrieval is Retrieval.HYBRID and not settings.dimension
        ):
            if not settings.analyzer:
                raise NoLexicalIndex(
                    "the collection has no lexical index, because an old version of hrag created "
                    "it; `hrag reindex` adds the index, and DENSE searches work without it",
                    field="retrieval",
                )
            return Retrieval.LEXICAL, ""
        if not settings.dimension:
            raise NoVectors(
                "the collection has no vectors (embedder `none`); set retrieval to LEXICAL",
                field="retrieval",
            )
        if self.failure is not None:
            if not settings.analyzer:
                raise self.failure
            return Retrieval.LEXICAL, self.failure.message
        if self.vector is None:
            raise VectorMissing
        if retrieval is Retrieval.HYBRID and not settings.analyzer:
            return Retrieval.DENSE, "the collection has no lexical index; `hrag reindex` adds it"
        return retrieval, ""

    def _search(
        self, snapshot: Snapshot, request: FindRequest, form: ResultForm[P]
    ) -> FindResult[P]:
        """Searches a snapshot as `request` says, and records the times of the search's stages."""
        engine_result = snapshot.find(request, form)
        self._stages += engine_result.stages
        return engine_result

    def _forget_collection(self) -> None:
        """Removes the collection from KnownCollections.

        So the next query of the collection reads the settings of the collection again.
        """
        self._parts.known_collections.forget(self.query.tenant_id, self.query.collection)


def _check_dimension(vector: Vector, settings: CollectionSettings) -> None:
    """Raises InvalidArgument if the vector's dimension is not that of the collection's vectors."""
    if len(vector) != settings.dimension:
        raise InvalidArgument(
            f"vector has {len(vector)} numbers; the vectors of the collection have "
            f"{settings.dimension}",
            field="vector",
        )
