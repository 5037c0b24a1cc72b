"""Types and documentation of the compiled `TermMatcher`."""

import numpy as np
from numpy.typing import NDArray

from hrag_fast._analysis import Matches, TermExtractor

class TermMatcher:
    """Finds the terms of one query in texts.

    `PassageEncoder` calls it in C for the leaves of each passage.
    """

    def __init__(
        self, extractor: TermExtractor, ids: NDArray[np.uint64], weights: NDArray[np.float32]
    ) -> None:
        """Stores references to the arguments, without copies.

        * `extractor`: finds the terms of texts.
        * `ids`: uint64[terms], the ids of the query's terms, ascending.
        * `weights`: float32[terms], the weight of each term in the choice of a sentence to cite.

        Raises ValueError for another dtype, shape or order, and if the two arrays differ in length.
        """

    def matches(self, text: str) -> Matches:
        """Returns where the terms occur in a text, like `TermExtractor.matches`."""
