"""Types and documentation of the compiled `UnigramTokenizer`."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

class UnigramTokenizer:
    """The tokenizer of a SentencePiece unigram model (Kudo, 2018; arXiv:1804.10959).

    A text is normalised by the model's rules, and each run of spaces becomes one space. Then the
    text is cut into the pieces of the model's vocabulary that have the highest sum of scores. A
    character that is no piece becomes the unknown token, whose score is 10 below the lowest score
    of all pieces. The object is immutable, so it is safe to use from several threads.
    """

    def __init__(self, model: bytes) -> None:
        """Reads the bytes of a SentencePiece model file (a ModelProto).

        Raises ValueError if `model` is not such a file.
        """

    @property
    def vocabulary_size(self) -> int:
        """The count of token ids. Ids are from 0 to this count less 1."""

    def encode(self, texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the ids of all texts, int32[t], and where each text begins, int64[n + 1].

        A text's ids begin with 1 and end with 2. A blank text has 0, the unknown token, between
        these two. The last entry of the second array is t. Takes linear time. The GIL is kept for
        texts of up to 200 bytes in total (about 20 us), and released for more.

        Raises UnicodeEncodeError for a lone surrogate, TypeError for an object that is no text,
        and MemoryError.
        """
