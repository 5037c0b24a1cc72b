"""SENTENCE_WINDOW's search: leaves from a snapshot, then sentences from the embedder.

The snapshot is closed before sentences are embedded: a read transaction must not wait for a
model. If too few windows come out, the next round asks for more leaves in a new snapshot.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np

from hrag.deadline import Deadline
from hrag.embedding.cache import CachedQueries
from hrag.engine import FindRequest, Snapshot, Vector
from hrag.engine.rounds import FACTOR
from hrag.errors import EmbedderRejected, HragError, NoVectors
from hrag.passages import sentence_windows
from hrag.passages.sentence_context import SentenceContext
from hrag.passages.sentence_windows import ChosenWindows
from hrag.tracing import Stage
from hrag.types import DEFAULT_LIMIT, Passage
from retriever_svc.modes import contexts_request, window_sentences
from retriever_svc.prepared_query import EmbeddedQuery
from retriever_svc.results import SearchOutcome

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
        open_snapshot: Callable[[], AbstractContextManager[Snapshot]],
        deadline: Deadline,
    ) -> tuple[SearchOutcome, tuple[Passage, ...]]:
        """Returns the query's `limit` of windows, or as many as there are.

        Raises DeadlineExceeded, NoVectors, and as the embedder does.
        """
        query = embedded.prepared.query
        limit = DEFAULT_LIMIT if query.limit is None else query.limit
        stages: list[Stage] = []
        leaves = _LEAVES_PER_WINDOW * limit
        while True:
            with open_snapshot() as snapshot:
                request, fallback = request_of(snapshot, embedded)
                vector = _required(request.vector)
                sentences = window_sentences(query)
                found = snapshot.find(contexts_request(request, leaves, sentences))
                sequence, level = snapshot.sequence, request.level
            stages += found.stages
            deadline.check("searching")
            began = self._clock()
            chosen = ChosenWindows(query, limit)
            took_all = self._choose(chosen, sentences, vector, found.contexts, deadline)
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

    def _choose(
        self,
        chosen: ChosenWindows,
        margin: int,
        vector: Vector,
        contexts: Sequence[SentenceContext],
        deadline: Deadline,
    ) -> bool:
        """Adds the leaves' windows until none is missing; returns True if none is left out."""
        rest = list(contexts)
        while rest and chosen.missing:
            some, rest = rest[: chosen.missing], rest[chosen.missing :]
            best = self._best(some, vector, deadline)
            for context, (number, score) in zip(some, best, strict=True):
                chosen.add(sentence_windows.window(context, number, score, margin))
        return not rest and not chosen.left_out

    def _best(
        self, contexts: Sequence[SentenceContext], vector: Vector, deadline: Deadline
    ) -> Iterator[tuple[int, float]]:
        """Yields the best sentence of each context and its score.

        A single candidate is not embedded: it gets the leaf's score."""
        numbers = [sentence_windows.candidate_sentences(context) for context in contexts]
        texts = [
            context.sentences[number].content.strip()
            for context, candidates in zip(contexts, numbers, strict=True)
            if len(candidates) > 1
            for number in candidates
        ]
        vectors = iter(self._sentences.embed_each(texts, deadline))
        for context, candidates in zip(contexts, numbers, strict=True):
            if len(candidates) == 1:
                yield candidates[0], context.score
            else:
                scores = [_score(next(vectors), vector) for _ in candidates]
                best = int(np.argmax(scores))
                yield candidates[best], scores[best]


def _required(vector: Vector | None) -> Vector:
    """The query's vector; raises NoVectors in a collection without."""
    if vector is None:
        raise NoVectors(
            "the collection has no vectors (embedder `none`), and SENTENCE_WINDOW compares those "
            "of sentences; use another mode",
            field="mode",
        )
    return vector


def _score(sentence: Vector | HragError, vector: Vector) -> float:
    """The cosine; the lowest one for a sentence that the embedder refuses."""
    if isinstance(sentence, EmbedderRejected):
        return -1.0
    if isinstance(sentence, HragError):
        raise sentence
    return float(sentence @ vector)
