"""A summary made of a text's own sentences; needs no model but the embedder.

Those sentences are taken that are nearest to the mean of all, as long as they are not
what has been taken already: centroid-based summarisation (Radev et al., 2004; over
embeddings Rossiello et al., 2017) with maximal marginal relevance (Carbonell and
Goldstein, 1998).
"""

import re
from itertools import pairwise

import numpy as np

from hrag.embedding import Embedder, Vectors
from hrag.errors import EmbedderRejected
from hrag.sentences import sentence_ends

_CHARS = 500  # About 100 tokens: enough for a few statements, short enough to be precise.
_SENTENCES = 100  # So many are compared, evenly spread: more cost time and change little.
_REDUNDANCY = 0.5  # How much likeness to what is taken already counts against relevance.
_SHORTEST = 20  # Characters; what is shorter says little: headings, numbers, labels.
_BETWEEN = " "
_WORD = re.compile(r"\w")


def extract(text: str, embedder: Embedder) -> str:
    """The text's most central sentences, in order; "" if it has none.

    Its first ones where the embedder refuses them. Raises EmbedderUnavailable.
    """
    found = _sentences(text)
    if len(found) <= 1:
        return "".join(found)
    try:
        order = _by_relevance(embedder.embed(found))
    except EmbedderRejected:
        order = list(range(len(found)))
    taken: list[int] = []
    left = _CHARS
    for number in order:
        left -= len(found[number]) + len(_BETWEEN)
        if taken and left < 0:
            break
        taken.append(number)
    return _BETWEEN.join(found[number] for number in sorted(taken))


def _sentences(text: str) -> list[str]:
    """Those worth comparing, each once."""
    ends = sentence_ends(text)
    all_of_them = [" ".join(text[start:end].split()) for start, end in pairwise([0, *ends])]
    telling = [each for each in dict.fromkeys(all_of_them) if _WORD.search(each)]
    long = [each for each in telling if len(each) >= _SHORTEST] or telling
    chosen = np.linspace(0, len(long) - 1, min(len(long), _SENTENCES)).astype(int)
    return [long[number] for number in chosen]


def _by_relevance(vectors: Vectors) -> list[int]:
    """All of them, the one first that is best to take next each time."""
    relevance = vectors @ vectors.mean(axis=0)
    likeness = vectors @ vectors.T
    nearest_taken = np.zeros(len(vectors), np.float32)
    order: list[int] = []
    for _ in range(len(vectors)):
        worth = relevance - _REDUNDANCY * nearest_taken
        worth[order] = -np.inf
        best = int(np.argmax(worth))
        order.append(best)
        nearest_taken = np.maximum(nearest_taken, likeness[best])
    return order
