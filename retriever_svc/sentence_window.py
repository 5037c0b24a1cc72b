"""SENTENCE_WINDOW's search: leaves from a snapshot, then sentences from the embedder.

The snapshot is closed before sentences are embedded: a read transaction must not wait for a
model. If too few windows come out, the next round asks for more leaves in a new snapshot.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain

import numpy as np

from hrag.engine import FindRequest, Snapshot, Vector
from hrag.engine.common.rounds import FACTOR
from hrag.models.embedding.cache import CachedQueries
from hrag.observe.tracing import Stage
from hrag.passages import sentence_windows
from hrag.passages.sentence_context import SentenceContext
from hrag.passages.sentence_windows import ChosenWindows
from hrag.values.deadline import Deadline
from hrag.values.errors import EmbedderRejected, HragError, NoVectors
from hrag.values.limits import DEFAULT_LIMIT
from hrag.values.search import Passage
from retriever_svc.modes import contexts_request, window_sentences
from retriever_svc.prepared_query import EmbeddedQuery
from retriever_svc.results import SearchOutcome
from retriever_svc.work_limit import EmbeddingWork

_LEAVES_PER_WINDOW = 2  # Neighbouring leaves often share a window.

RequestOf = Callable[[Snapshot, EmbeddedQuery], tuple[FindRequest, str]]
"""Returns a query's request to a snapshot, and why it asks fewer sources than the query."""


class SentenceWindowSearch:
    """Answers queries of the mode; safe to call from several threads."""

    def __init__(self, sentences: CachedQueries, clock: Callable[[], float]) -> None:
        """`sentences` embeds sentences, `clock` times it."""
        self._sentences = sentences
        self._clock = clock

    def __call__(
        self,
        embedded: EmbeddedQuery,
        request_of: RequestOf,
        open_snapshot: Callable[[str], AbstractContextManager[Snapshot]],
        deadline: Deadline,
        work: EmbeddingWork,
    ) -> tuple[SearchOutcome, tuple[Passage, ...]]:
        """Returns the query's `limit` of windows, or as many as there are.

        `open_snapshot` opens one of the collection with a name. All are of one collection, also
        if the query names it by an alias that is set to another one meanwhile.

        Raises DeadlineExceeded, NoVectors, TooLarge if that is more than `work` allows,
        ReplyTooLarge, and as the embedder does.
        """
        query = embedded.prepared.query
        limit = DEFAULT_LIMIT if query.limit is None else query.limit
        stages: list[Stage] = []
        leaves, collection = _LEAVES_PER_WINDOW * limit, query.collection
        while True:
            with open_snapshot(collection) as snapshot:
                collection = snapshot.name
                request, fallback = request_of(snapshot, embedded)
                vector = _required(request.vector)
                sentences = window_sentences(query)
                found = snapshot.find(contexts_request(request, leaves, sentences))
                sequence, level = snapshot.sequence, request.level
            stages += found.stages
            deadline.check("searching")
            began = self._clock()
            chosen = ChosenWindows(query, limit)
            best = partial(self._best, query.tenant_id, vector, work, deadline)
            took_all = _choose(chosen, sentences, found.contexts, best)
            stages.append(("embed", began, self._clock()))
            if not chosen.missing or found.exhausted:
                outcome = SearchOutcome(
                    found,
                    found.exhausted and took_all,
                    tuple(stages),
                    level,
                    level,
                    sequence,
                    request.retrieval,
                    fallback,
                )
                return outcome, chosen.passages()
            deadline.check("embedding sentences")
            leaves *= FACTOR

    def _best(
        self,
        tenant_id: str,
        vector: Vector,
        work: EmbeddingWork,
        deadline: Deadline,
        contexts: Sequence[SentenceContext],
        found: int,
    ) -> Iterator[tuple[int, float]]:
        """Yields the best sentence of each context and its score; `found` windows are chosen.

        Of a leaf without a word that is the first, with the leaf's score. Raises the embedder's
        error if it refuses all sentences.
        """
        numbers = [sentence_windows.candidate_sentences(context) for context in contexts]
        texts = [
            [context.sentences[number].content.strip() for number in candidates]
            for context, candidates in zip(contexts, numbers, strict=True)
        ]
        work.add_sentences(texts, found)
        embedded = self._sentences.embed_each(tenant_id, list(chain(*texts)), deadline)
        if not found:  # Else the embedder has taken some sentences of this search.
            _require_any(embedded)
        vectors = iter(embedded)
        for context, candidates in zip(contexts, numbers, strict=True):
            if not candidates:
                yield context.leaf_sentences.start, context.score
                continue
            scores = [_score(next(vectors), vector) for _ in candidates]
            best = int(np.argmax(scores))
            yield candidates[best], scores[best]


def _choose(
    chosen: ChosenWindows,
    margin: int,
    contexts: Sequence[SentenceContext],
    best_of: Callable[[Sequence[SentenceContext], int], Iterator[tuple[int, float]]],
) -> bool:
    """Adds the leaves' windows until none is missing; returns True if none is left out."""
    rest = list(contexts)
    while rest and chosen.missing:
        some, rest = rest[: chosen.missing], rest[chosen.missing :]
        best = best_of(some, len(chosen.windows))
        for context, (number, score) in zip(some, best, strict=True):
            chosen.add(sentence_windows.window(context, number, score, margin))
    return not rest and not chosen.left_out


def _required(vector: Vector | None) -> Vector:
    """The query's vector; raises NoVectors in a collection without."""
    if vector is None:
        raise NoVectors(
            "the collection has no vectors (embedder `none`), and SENTENCE_WINDOW compares those "
            "of sentences; use another mode",
            field="mode",
        )
    return vector


def _require_any(embedded: Sequence[Vector | HragError]) -> None:
    """Raises the embedder's error if it refuses each of some sentences."""
    refusals = [each for each in embedded if isinstance(each, EmbedderRejected)]
    if refusals and len(refusals) == len(embedded):
        raise refusals[0]


def _score(sentence: Vector | HragError, vector: Vector) -> float:
    """The cosine; the lowest one for a sentence that the embedder refuses."""
    if isinstance(sentence, EmbedderRejected) and not sentence.every_text:
        return -1.0
    if isinstance(sentence, HragError):
        raise sentence
    return float(sentence @ vector)
