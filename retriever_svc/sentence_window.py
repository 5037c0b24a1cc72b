"""The mode SENTENCE_WINDOW: compares sentences with the query, and chooses windows of sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from hrag.engine import Vector
from hrag.models.embedding.cache import CachedQueries
from hrag.passages import sentence_windows
from hrag.passages.sentence_context import SentenceContext, sentence_context
from hrag.passages.sentence_windows import ChosenWindows
from hrag.passages.surrounded_leaf import SurroundedLeaf
from hrag.values.deadline import Deadline
from hrag.values.errors import EmbedderRejected, HragError
from hrag.values.search import SearchQuery
from retriever_svc.work_limit import EmbeddingWork


@dataclass(frozen=True, slots=True)
class SentenceComparison:
    """Compares sentences with the vector of a query.

    `sentences` embeds the sentences for the tenant `tenant_id` within `deadline`. `work` limits how
    much text is embedded.
    """

    sentences: CachedQueries
    tenant_id: str
    vector: Vector
    deadline: Deadline
    work: EmbeddingWork

    def best(
        self, contexts: Sequence[SentenceContext], window_count: int
    ) -> Iterator[tuple[int, float]]:
        """Yields the index of the best sentence of each context, and the score of this sentence.

        If a leaf contains no word, its first sentence is the best one, with the score of the leaf.
        `window_count` is the count of windows that were chosen before. Raises TooLarge if the
        sentences are more text than `work` allows, what the embedder raises, and the embedder's
        error if it refuses all sentences.
        """
        indices = [sentence_windows.candidate_sentences(context) for context in contexts]
        texts = [
            [context.sentences[index].content.strip() for index in candidates]
            for context, candidates in zip(contexts, indices, strict=True)
        ]
        self.work.add_sentences(texts, window_count)
        embedded = self.sentences.embed_each(self.tenant_id, list(chain(*texts)), self.deadline)
        # Once windows have been chosen, this check is not necessary, because the embedder has
        # already accepted sentences of this search.
        if not window_count:
            _require_any(embedded)
        vectors = iter(embedded)
        for context, candidates in zip(contexts, indices, strict=True):
            if not candidates:
                yield context.leaf_sentences.start, context.score
                continue
            scores = [_score(next(vectors), self.vector) for _ in candidates]
            best = int(np.argmax(scores))
            yield candidates[best], scores[best]


def choose_windows(
    query: SearchQuery,
    limit: int,
    margin: int,
    leaves: Sequence[SurroundedLeaf],
    comparison: SentenceComparison,
) -> tuple[ChosenWindows, bool]:
    """Returns up to `limit` windows of the leaves, and True if no window is left out.

    A window has `margin` sentences on both sides of the best sentence of its leaf. `leaves` are in
    order of rank; their sentences are embedded only until `limit` windows are chosen. Raises the
    errors of `SentenceComparison.best`.
    """
    chosen, remaining = ChosenWindows(query, limit), list(leaves)
    while remaining and chosen.missing:
        batch, remaining = remaining[: chosen.missing], remaining[chosen.missing :]
        contexts = [sentence_context(leaf, margin) for leaf in batch]
        best = comparison.best(contexts, len(chosen.windows))
        for context, (index, score) in zip(contexts, best, strict=True):
            chosen.add(sentence_windows.window(context, index, score, margin))
    return chosen, not remaining and not chosen.left_out


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
