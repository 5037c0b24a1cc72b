"""Types and documentation of the compiled `UnigramTokenizer`."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

class UnigramTokenizer:
    """The tokenizer of a SentencePiece unigram model (Kudo, 2018; arXiv:1804.10959).

    A text is normalised by the model's own rules, its runs of spaces become one each, and it is
    cut into the pieces with the highest sum of scores. A character that no piece has is the
    unknown token, with the lowest score of a piece less 10. Immutable, so safe to use from
    several threads.
    """

    def __init__(self, model: bytes) -> None:
        """`model`: a SentencePiece model file, a ModelProto. Raises ValueError if it is none."""

    @property
    def vocabulary_size(self) -> int:
        """Ids are below it."""

    def encode(self, texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the ids of all texts, int32[t], and where each text begins, int64[n + 1].

        A text's ids begin with 1 and end with 2; a blank text has 0, the unknown token, between.
        The last of the starts is t. Takes linear time. The GIL is kept for up to 200 bytes
        (about 20 us) and released for more.

        Raises UnicodeEncodeError for a lone surrogate, TypeError for what is no text, MemoryError.
        """
