"""Types and documentation of the compiled `BertEncoder` and `Q4Matrix`.

Array arguments are C-contiguous and may be read-only. A wrong dtype or a shape that is not
documented raises ValueError; None or an object that is no array raises TypeError. Arrays that are
returned are new. `products` and `encode` release the GIL, may be called from several threads, and
raise MemoryError if there is not enough memory.

A block is 32 consecutive numbers of a row, as 18 bytes: a scale as a finite little-endian float16,
and 16 bytes with two codes each. The number i is `(byte[i] % 16 - 8) * scale`, the number 16 + i is
`(byte[i] // 16 - 8) * scale`. This is the form Q4_0 of ggml.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

class Q4Matrix:
    """An immutable matrix of 4-bit codes with biases, packed for the products of rows."""

    def __init__(
        self, blocks: NDArray[np.uint8], biases: NDArray[np.float32], path: str | None = None
    ) -> None:
        """Copies the blocks of n columns of 32 b numbers each.

        * `blocks`: uint8[n, b, 18]. n must be a multiple of 16.
        * `biases`: float32[n].
        * `path`: one of `supported_paths()`, by default the fastest one.

        Raises ValueError for another shape or an unknown path.
        """

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix, (32 b, n)."""

    def products(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns `rows @ matrix + biases`, float32[m, n], for rows float32[m, 32 b].

        The numbers of a row are rounded to integers from -127 to 127, in blocks of 32 with one
        scale. The result has the same bits on every path. Numbers must be finite; if they are not,
        or if a product is too large for a float32, results are arbitrary.
        """

class BertEncoder:
    """Computes vectors from tokens, by an encoder like BERT (arXiv:1810.04805).

    A layer normalises after it has added (post-norm), and its small network uses GELU. A head of
    the attention has 32 numbers. The object is immutable.
    """

    def __init__(
        self,
        table: NDArray[np.uint8],
        positions: NDArray[np.float32],
        weights: Mapping[str, Q4Matrix | NDArray[np.float32]],
        layer_count: int,
        epsilon: float,
    ) -> None:
        """Stores references to all arrays, without copies.

        * `table`: uint8[v, w / 32, 18], the embeddings of v tokens as blocks.
        * `positions`: float32[p, w], the embeddings of positions. w must be a multiple of 32.
        * `weights`: the vectors `type`, `gains`, `biases` (w), which are added to an embedding and
          normalise it. For each layer i there are the matrices `attention{i}` (w, 3 w) with the
          columns of the queries, the keys and the values, `output{i}` (w, w), `inner{i}` (w, m),
          `outer{i}` (m, w), and the vectors `output_gains{i}`, `output_biases{i}`,
          `outer_gains{i}`, `outer_biases{i}` (w).
        * `epsilon`: what a normalisation adds to the variance; above 0.

        All values must be finite; this is not checked.

        Raises KeyError for missing weights, and ValueError for a wrong shape.
        """

    def encode(self, ids: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns for each text the mean of the vectors of its tokens, float32[n, w].

        `ids` are the tokens of all texts, and a text has the tokens from `starts[i]` to
        `starts[i + 1]`: 1 to p tokens. The mean has the same bits in every call, whichever other
        texts the call has, and on every processor.

        Raises ValueError for ids that are not in the table, and for texts of other lengths.
        """
