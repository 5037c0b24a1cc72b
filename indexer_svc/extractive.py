"""Extractive summaries: a text's own most central sentences, chosen with the embedder alone.

Centroid-based summarisation (Radev et al., 2004; over embeddings: Rossiello et al., 2017)
prefers sentences near the mean of all sentences. Maximal marginal relevance (Carbonell and
Goldstein, 1998) keeps the chosen sentences different from each other.
"""

import re
from itertools import pairwise

import numpy as np

from hrag.models.embedding import Embedder, Vectors
from hrag.text.sentences import sentence_ends
from hrag.values.errors import EmbedderRejected

_MAX_CHARS = 500  # About 100 tokens: a few statements, whose embedding is still precise.
_MAX_SENTENCES = 100  # Sentences to compare, evenly spread. More take time and change little.
_REDUNDANCY_WEIGHT = 0.5  # Of the similarity to a chosen sentence, against relevance.
_MIN_CHARS = 20  # Shorter sentences are mostly headings, numbers and labels.
_SEPARATOR = " "
_WORD = re.compile(r"\w")


def extract(text: str, embedder: Embedder) -> str:
    """Returns the most central sentences of `text` in their order; empty if there are none.

    The result has at most _MAX_CHARS characters, unless the best one is longer. If the
    embedder rejects the sentences, the first ones are returned. Raises EmbedderUnavailable.
    Time is quadratic in the number of sentences, which is at most _MAX_SENTENCES.
    """
    found = _sentences(text)
    if len(found) <= 1:
        return "".join(found)
    try:
        order = _by_marginal_relevance(embedder.embed(found))
    except EmbedderRejected:
        order = list(range(len(found)))
    chosen: list[int] = []
    left = _MAX_CHARS
    for number in order:
        left -= len(found[number]) + len(_SEPARATOR)
        if chosen and left < 0:
            break
        chosen.append(number)
    return _SEPARATOR.join(found[number] for number in sorted(chosen))


def _sentences(text: str) -> list[str]:
    """The different sentences to compare, at most _MAX_SENTENCES."""
    ends = sentence_ends(text)
    sentences = [" ".join(text[start:end].split()) for start, end in pairwise([0, *ends])]
    with_words = [each for each in dict.fromkeys(sentences) if _WORD.search(each)]
    long = [each for each in with_words if len(each) >= _MIN_CHARS] or with_words
    sample = np.linspace(0, len(long) - 1, min(len(long), _MAX_SENTENCES)).astype(int)
    return [long[number] for number in sample]


def _by_marginal_relevance(vectors: Vectors) -> list[int]:
    """All indices in the order of choice. `vectors` is `float32[sentences, dimension]`."""
    relevance = vectors @ vectors.mean(axis=0)
    similarity = vectors @ vectors.T
    redundancy = np.zeros(len(vectors), np.float32)  # To the nearest chosen sentence.
    order: list[int] = []
    for _ in range(len(vectors)):
        score = relevance - _REDUNDANCY_WEIGHT * redundancy
        score[order] = -np.inf
        best = int(np.argmax(score))
        order.append(best)
        redundancy = np.maximum(redundancy, similarity[best])
    return order
