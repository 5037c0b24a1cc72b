"""Types and documentation of the compiled `UnigramTokenizer`."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

class UnigramTokenizer:
    """The tokenizer of a SentencePiece unigram model (Kudo, 2018; arXiv:1804.10959).

    A text is normalised by the model's rules, and each run of spaces becomes one space. Then the
    text is cut into the pieces with the highest sum of scores. A character without a piece becomes
    the unknown token; its score is the lowest score of all pieces, less 10. The object is
    immutable, so it is safe to use from several threads.
    """

    def __init__(self, model: bytes) -> None:
        """Reads a SentencePiece model file (a ModelProto). Raises ValueError if it is none."""

    @property
    def vocabulary_size(self) -> int:
        """The number of ids. All ids are below it."""

    def encode(self, texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the ids of all texts, int32[t], and where each text begins, int64[n + 1].

        A text's ids begin with 1 and end with 2. A blank text has 0, the unknown token, between
        them. The last of the starts is t. Takes linear time. The GIL is kept for up to 200 bytes
        (about 20 us), and released for more.

        Raises UnicodeEncodeError for a lone surrogate, TypeError for an object that is no text,
        and MemoryError.
        """
