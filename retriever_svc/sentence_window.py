"""The search of SENTENCE_WINDOW: a snapshot finds leaves, then the embedder compares sentences.

The snapshot is closed before sentences are embedded: a read transaction must not wait for a
model. If a round yields too few windows, the next round asks a new snapshot for more leaves.
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
"""Returns a query's request, and why it has fewer sources than the query asks for, or ""."""


class SentenceWindowSearch:
    """Answers queries of SENTENCE_WINDOW. Safe to call from several threads."""

    def __init__(self, sentences: CachedQueries, clock: Callable[[], float]) -> None:
        """`sentences` embeds sentences, and `clock` times the embedding."""
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
        """Returns the query's `limit` of windows, or all windows if there are fewer.

        `open_snapshot` opens a snapshot of the collection with the given name. All snapshots are
        of the same collection, even if the query names it by an alias that is set to another
        collection meanwhile.

        Raises DeadlineExceeded, NoVectors, TooLarge if the sentences are more text than `work`
        allows, ReplyTooLarge, and what the embedder raises.
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
                result = snapshot.find(contexts_request(request, leaves, sentences))
                sequence, level = snapshot.sequence, request.level
            stages += result.stages
            deadline.check("searching")
            began = self._clock()
            chosen = ChosenWindows(query, limit)
            best = partial(self._best, query.tenant_id, vector, work, deadline)
            took_all = _choose(chosen, sentences, result.contexts, best)
            stages.append(("embed", began, self._clock()))
            if not chosen.missing or result.exhausted:
                outcome = SearchOutcome(
                    result,
                    result.exhausted and took_all,
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
        window_count: int,
    ) -> Iterator[tuple[int, float]]:
        """Yields the number of each context's best sentence, and its score.

        If a leaf contains no word, it yields the leaf's first sentence with the leaf's score.
        `window_count` windows have been chosen before. Raises the embedder's error if it refuses
        all sentences.
        """
        numbers = [sentence_windows.candidate_sentences(context) for context in contexts]
        texts = [
            [context.sentences[number].content.strip() for number in candidates]
            for context, candidates in zip(contexts, numbers, strict=True)
        ]
        work.add_sentences(texts, window_count)
        embedded = self._sentences.embed_each(tenant_id, list(chain(*texts)), deadline)
        # If there are windows, the embedder has accepted some sentences of this search before.
        if not window_count:
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
    """Adds the leaves' windows until none is missing. Returns True if no window is left out."""
    remaining = list(contexts)
    while remaining and chosen.missing:
        batch, remaining = remaining[: chosen.missing], remaining[chosen.missing :]
        best = best_of(batch, len(chosen.windows))
        for context, (number, score) in zip(batch, best, strict=True):
            chosen.add(sentence_windows.window(context, number, score, margin))
    return not remaining and not chosen.left_out


def _required(vector: Vector | None) -> Vector:
    """Returns the query's vector. Raises NoVectors if it is None."""
    if vector is None:
        raise NoVectors(
            "the collection has no vectors (embedder `none`), and SENTENCE_WINDOW compares those "
            "of sentences; use another mode",
            field="mode",
        )
    return vector


def _require_any(embedded: Sequence[Vector | HragError]) -> None:
    """Raises the embedder's error if there are sentences and it refuses all of them."""
    refusals = [outcome for outcome in embedded if isinstance(outcome, EmbedderRejected)]
    if refusals and len(refusals) == len(embedded):
        raise refusals[0]


def _score(sentence: Vector | HragError, vector: Vector) -> float:
    """Returns the cosine of a sentence and the query; -1 if the embedder refuses the sentence."""
    if isinstance(sentence, EmbedderRejected) and not sentence.every_text:
        return -1.0
    if isinstance(sentence, HragError):
        raise sentence
    return float(sentence @ vector)
