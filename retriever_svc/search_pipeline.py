"""Answers queries: checks each query, embeds its text, and searches.

A query with `min_sequence` first waits until the tenant's changes up to this sequence number are
visible. A `SearchRun` searches for one query after the query's text has been embedded.
"""

import math
import time
from collections.abc import Callable, Sequence

from hrag.engine import VALUES, Reader
from hrag.models.embedding import Embedder
from hrag.models.embedding.cache import CachedQueries
from hrag.observe import metrics
from hrag.observe.tracing import Stage
from hrag.values.deadline import Deadline
from hrag.values.errors import HragError, ReplyTooLarge, outcome_of
from hrag.values.limits import MAX_BATCH_REFUSALS, check_batch
from hrag.values.reply_limit import SEARCH_ADVICE, SETTING, UNLIMITED, ReplyLimit
from hrag.values.search import SearchQuery, SearchResult
from hrag.wire.encoded_results import encoded_bytes
from retriever_svc.freshness import require_sequence
from retriever_svc.known_collections import KnownCollections
from retriever_svc.query_options import check_query
from retriever_svc.query_vectors import use_given_vector
from retriever_svc.rerank_stage import RerankSetup, RerankStage
from retriever_svc.search_models import SearchModel, SearchModels
from retriever_svc.search_requests import CheckedQuery
from retriever_svc.search_run import ENCODED, SearchParts, SearchRun
from retriever_svc.work_limit import check_filters, check_texts

# The maximum size of one encoded error in the reply to a batch, in bytes. The message of an error
# has at most 1,000 bytes.
_ERROR_BYTES = 2048
_NOT_RUN = (
    f"this search was not run, because {MAX_BATCH_REFUSALS} searches before it in the batch did "
    f"not fit into the reply ({SETTING}); send it in another batch, or {SEARCH_ADVICE}"
)


class Search:
    """Answers queries. Safe to call from several threads.

    `return_level` is the level of passages if neither the query nor the collection sets one.
    Modes that return leaves ignore `return_level`. With `allows_fallback`, HYBRID queries are
    answered by words alone while the embedder does not work. `reply` limits the bytes that a
    search, or a whole batch, returns. `previous` has the model of the previous embedder, if the
    service has one.
    """

    def __init__(
        self,
        reader: Reader,
        embedder: Embedder,
        queries: CachedQueries,
        return_level: int,
        *,
        allows_fallback: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        reranking: RerankSetup | None = None,
        reply: ReplyLimit = UNLIMITED,
        previous: Sequence[SearchModel] = (),
    ) -> None:
        current = SearchModel(embedder, queries)
        models = SearchModels([current, *previous], allows_fallback=allows_fallback)
        self._embed = models.embed
        self._parts = SearchParts(
            reader=reader,
            models=models,
            known_collections=KnownCollections(reader, models.embedders),
            rerank=RerankStage(reranking),
            return_level=return_level,
            clock=clock,
        )
        self._clock = clock
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
        run, embedding = self._embedded(query, deadline, embedding_s)
        return run.result(VALUES, self._reply, embedding)

    def encoded(self, query: SearchQuery, deadline: Deadline) -> SearchResult[bytes]:
        """Returns the same result as `__call__`, but with passages encoded as bytes.

        Raises the same errors as `__call__`.
        """
        run, embedding = self._embedded(query, deadline)
        result = run.result(ENCODED, self._reply, embedding)
        self._reply.check(encoded_bytes(result), SEARCH_ADVICE)
        return result

    def batch(
        self, queries: Sequence[SearchQuery | HragError], deadline: Deadline
    ) -> list[SearchResult[bytes] | HragError]:
        """Returns the result or the error of each query, in order. Texts are embedded together.

        An error in `queries` is returned unchanged. If the result of a query does not fit into the
        reply together with the results of the queries before it, the query's error is
        ReplyTooLarge. After MAX_BATCH_REFUSALS such errors, the further queries are not searched:
        each gets the error ReplyTooLarge.

        Raises InvalidArgument if the batch has no queries or too many queries, and TooLarge if the
        queries have too much text, or too large filters, in total.
        """
        check_batch(len(queries))
        check_texts(query.text for query in queries if isinstance(query, SearchQuery))
        began = self._clock()
        runs = [
            query if isinstance(query, HragError) else outcome_of(self._started, query, deadline)
            for query in queries
        ]
        started = [run for run in runs if isinstance(run, SearchRun)]
        check_filters(run.query.filter for run in started if run.query.filter is not None)
        self._embed(started, deadline)
        embedding: Stage = ("embed", began, self._clock())
        reply = self._reply.after(_ERROR_BYTES * len(queries))
        outcomes: list[SearchResult[bytes] | HragError] = []
        refusals = 0
        for run in runs:
            is_run = refusals < MAX_BATCH_REFUSALS or isinstance(run, HragError)
            outcome = _outcome(run, reply, embedding) if is_run else ReplyTooLarge(_NOT_RUN)
            if isinstance(outcome, HragError):
                metrics.size_refused(outcome)
                refusals += isinstance(outcome, ReplyTooLarge)
            else:
                reply = reply.after(encoded_bytes(outcome))
            outcomes.append(outcome)
        return outcomes

    def _embedded(
        self, query: SearchQuery, deadline: Deadline, embedding_s: float = math.inf
    ) -> tuple[SearchRun, Stage]:
        """Sets the vector of one query, or the reason why it has none.

        Returns its SearchRun, and the start and end time of embedding.
        """
        began = self._clock()
        run = self._started(query, deadline)
        if run.embeds:
            self._embed([run], deadline, embedding_s)
        else:
            use_given_vector(run)
        return run, ("embed", began, self._clock())

    def _started(self, query: SearchQuery, deadline: Deadline) -> SearchRun:
        """Checks a query and returns its SearchRun, which has no vector yet.

        Raises Suspended if the query has a `min_sequence` that is not visible yet.
        """
        if not isinstance(query, CheckedQuery):
            check_query(query)
        parts = self._parts
        parts.rerank.check(query)
        run = SearchRun(parts, query, deadline)
        require_sequence(parts.reader, query.tenant_id, query.min_sequence, deadline)
        run.choose_model()
        return run


def _outcome(
    run: SearchRun | HragError, reply: ReplyLimit, embedding: Stage
) -> SearchResult[bytes] | HragError:
    """Searches for one query of a batch; returns the result or the error.

    `reply` limits the bytes of the result. `embedding` has the start and end time of embedding.
    """
    if isinstance(run, HragError):
        return run
    outcome = outcome_of(run.result, ENCODED, reply, embedding)
    if isinstance(outcome, HragError):
        return outcome
    too_large = outcome_of(reply.check, encoded_bytes(outcome), SEARCH_ADVICE)
    return too_large or outcome
