"""SENTENCE_WINDOW's search: leaves from a snapshot, then sentences from the embedder.

The snapshot is closed before sentences are embedded: a read transaction must not wait for a
model. If too few windows come out, the next round asks for more leaves in a new snapshot.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np

from hrag.deadline import Deadline
from hrag.embedding.cache import CachedQueries
from hrag.engine import Snapshot, Vector
from hrag.engine.rounds import FACTOR
from hrag.errors import EmbedderRejected, HragError
from hrag.passages import sentence_windows
from hrag.passages.sentence_context import SentenceContext
from hrag.passages.sentence_windows import Window
from hrag.tracing import Stage
from hrag.types import Passage, SearchQuery
from retriever_svc.modes import contexts_request, window_sentences
from retriever_svc.results import SearchOutcome

_LEAVES_PER_WINDOW = 2  # Neighbouring leaves often share a window.


class SentenceWindowSearch:
    """Answers queries of the mode; safe to call from several threads."""

    def __init__(self, sentences: CachedQueries, clock: Callable[[], float]) -> None:
        """`sentences` embeds sentences, `clock` times it."""
        self._sentences = sentences
        self._clock = clock

    def __call__(
        self,
        query: SearchQuery,
        vector: Vector,
        open_snapshot: Callable[[], AbstractContextManager[Snapshot]],
        deadline: Deadline,
    ) -> tuple[SearchOutcome, tuple[Passage, ...]]:
        """Returns `query.limit` windows, or as many as there are.

        Raises DeadlineExceeded, and as the embedder does.
        """
        stages: list[Stage] = []
        leaves = _LEAVES_PER_WINDOW * query.limit
        while True:
            with open_snapshot() as snapshot:
                level = snapshot.settings.tree.embedding_level
                found = snapshot.find(contexts_request(query, vector, level, leaves))
                sequence = snapshot.sequence
            stages += found.stages
            deadline.check("searching")
            began = self._clock()
            windows, is_rest = self._windows(query, vector, found.contexts, deadline)
            stages.append(("embed", began, self._clock()))
            if len(windows) == query.limit or found.exhausted:
                passages = sentence_windows.passages_of(windows, query)
                is_all = found.exhausted and not is_rest and len(passages) == len(windows)
                outcome = SearchOutcome(found, is_all, tuple(stages), level, level, sequence)
                return outcome, passages
            deadline.check("embedding sentences")
            leaves *= FACTOR

    def _windows(
        self,
        query: SearchQuery,
        vector: Vector,
        contexts: Sequence[SentenceContext],
        deadline: Deadline,
    ) -> tuple[list[Window], bool]:
        """The best leaves' windows until there are `limit`; and whether leaves are left over."""
        margin = window_sentences(query)
        found: list[Window] = []
        rest = list(contexts)
        while rest and len(found) < query.limit:
            some, rest = rest[: query.limit - len(found)], rest[query.limit - len(found) :]
            best = self._best(some, vector, deadline)
            for context, (number, score) in zip(some, best, strict=True):
                new = sentence_windows.window(context, number, score, margin)
                found = sentence_windows.add_window(found, new, or_touches=query.merge_adjacent)
        return found, bool(rest)

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


def _score(sentence: Vector | HragError, vector: Vector) -> float:
    """The cosine; the lowest one for a sentence that the embedder refuses."""
    if isinstance(sentence, EmbedderRejected):
        return -1.0
    if isinstance(sentence, HragError):
        raise sentence
    return float(sentence @ vector)
