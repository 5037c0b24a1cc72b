"""Extractive summaries: the most central sentences of a text. Needs no chat model.

Centroid-based summarisation (Radev et al., 2004; over embeddings: Rossiello et al., 2017) prefers
sentences whose vectors are near the mean of the vectors of all sentences. Maximal marginal
relevance (Carbonell and Goldstein, 1998) keeps the chosen sentences different from each other.
"""

import re
from itertools import pairwise

import numpy as np

from hrag.models.embedding import Embedder, Vectors
from hrag.text.sentences import sentence_ends
from hrag.values.errors import EmbedderRejected

# A summary has at most this many characters, which are about 100 tokens. So it contains a few
# statements, and its embedding is still precise.
_MAX_CHARS = 500
# At most this many sentences are compared, spread evenly over the text. Comparing more sentences
# would take more time and hardly change the summary.
_MAX_SENTENCES = 100
# A sentence that is similar to an already chosen sentence is less useful. So its similarity to the
# most similar chosen sentence is multiplied by this weight, and the product is subtracted from its
# relevance (its similarity to the mean of all vectors).
_REDUNDANCY_WEIGHT = 0.5
# Sentences with fewer characters are used only if the text has no longer sentences. Such short
# sentences are mostly headings, numbers and labels.
_MIN_CHARS = 20
_SEPARATOR = " "
_WORD = re.compile(r"\w")


def extract(text: str, embedder: Embedder) -> str:
    """Returns the most central sentences of `text`, in the order of the text.

    The result is empty if the text has no sentence with a word. It has at most _MAX_CHARS
    characters. Exception: if the best sentence alone is longer, the result is this sentence. If the
    embedder rejects the sentences, the first sentences of the text are returned instead of the most
    central ones. Raises EmbedderUnavailable if the embedder does not answer. The time is quadratic
    in the count of compared sentences, which is at most _MAX_SENTENCES.
    """
    sentences = _sentences_to_compare(text)
    if len(sentences) <= 1:
        return "".join(sentences)
    try:
        order = _rank_by_marginal_relevance(embedder.embed(sentences))
    except EmbedderRejected:
        order = list(range(len(sentences)))
    chosen: list[int] = []
    remaining_chars = _MAX_CHARS
    for index in order:
        remaining_chars -= len(sentences[index]) + len(_SEPARATOR)
        if chosen and remaining_chars < 0:
            break
        chosen.append(index)
    return _SEPARATOR.join(sentences[index] for index in sorted(chosen))


def _sentences_to_compare(text: str) -> list[str]:
    """Returns the sentences to compare, in order of the text, at most _MAX_SENTENCES.

    Duplicates and sentences without a word are left out.
    """
    ends = sentence_ends(text)
    sentences = [" ".join(text[start:end].split()) for start, end in pairwise([0, *ends])]
    with_words = [sentence for sentence in dict.fromkeys(sentences) if _WORD.search(sentence)]
    long = [sentence for sentence in with_words if len(sentence) >= _MIN_CHARS] or with_words
    sample = np.linspace(0, len(long) - 1, min(len(long), _MAX_SENTENCES)).astype(int)
    return [long[index] for index in sample]


def _rank_by_marginal_relevance(vectors: Vectors) -> list[int]:
    """Returns the indices of all sentences, best first, by maximal marginal relevance.

    `vectors` is `float32[sentences, dimension]`, one unit vector for each sentence.
    """
    relevance = vectors @ vectors.mean(axis=0)
    similarity = vectors @ vectors.T
    # For each sentence, its similarity to the most similar sentence that has been chosen so far.
    redundancy = np.zeros(len(vectors), np.float32)
    order: list[int] = []
    for _ in range(len(vectors)):
        score = relevance - _REDUNDANCY_WEIGHT * redundancy
        score[order] = -np.inf
        best = int(np.argmax(score))
        order.append(best)
        redundancy = np.maximum(redundancy, similarity[best])
    return order
