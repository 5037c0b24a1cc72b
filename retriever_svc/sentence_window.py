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

    `sentence_embedder` embeds the sentences for the tenant `tenant_id` within `deadline`. `work`
    limits how much text is embedded.
    """

    sentence_embedder: CachedQueries
    tenant_id: str
    vector: Vector
    deadline: Deadline
    work: EmbeddingWork

    def best(
        self, contexts: Sequence[SentenceContext], window_count: int
    ) -> Iterator[tuple[int, float]]:
        """Yields the index and the score of the best sentence of each context, in order.

        A context is a leaf with the sentences around it. The best sentence is the sentence of the
        leaf that is nearest to the query. If a leaf contains no word, its first sentence is its
        best sentence, with the score of the leaf. `window_count` is the count of windows that this
        search has chosen already. Raises TooLarge if the sentences have more text than `work`
        allows. Raises the embedder's error if embedding fails. Also raises the embedder's error if
        the embedder refuses all sentences and `window_count` is 0.
        """
        indices = [sentence_windows.candidate_sentences(context) for context in contexts]
        texts = [
            [context.sentences[index].content.strip() for index in candidates]
            for context, candidates in zip(contexts, indices, strict=True)
        ]
        self.work.add_sentences(texts, window_count)
        embedded = self.sentence_embedder.embed_each(
            self.tenant_id, list(chain(*texts)), self.deadline
        )
        # If the embedder refuses the sentences of the first leaves, it probably refuses every text,
        # and the search fails. If windows have been chosen already, the embedder has accepted
        # sentences before, so later refusals are not errors of the search.
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
    """Returns up to `limit` windows, and True if no leaf and no window was left out.

    A window is the best sentence of a leaf, with up to `margin` sentences on each side. `leaves`
    are the leaves that the search has found, best first. The sentences of further leaves are not
    embedded once `limit` windows are chosen. Raises the errors of `SentenceComparison.best`.
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
    """Raises the first error in `embedded` if the embedder has refused all sentences.

    `embedded` has the vector or the error of each sentence. Does nothing if it is empty.
    """
    refusals = [outcome for outcome in embedded if isinstance(outcome, EmbedderRejected)]
    if refusals and len(refusals) == len(embedded):
        raise refusals[0]


def _score(sentence: Vector | HragError, vector: Vector) -> float:
    """Returns the cosine of a sentence's vector and the query's `vector`.

    `sentence` is the sentence's vector, or the embedder's error. Returns -1 if the embedder has
    refused only this sentence. If `sentence` is any other error, raises this error.
    """
    if isinstance(sentence, EmbedderRejected) and not sentence.every_text:
        return -1.0
    if isinstance(sentence, HragError):
        raise sentence
    return float(sentence @ vector)
