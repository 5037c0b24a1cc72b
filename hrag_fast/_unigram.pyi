"""Types and documentation of the compiled `UnigramTokenizer` and `UnigramSegmenter`."""

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

class UnigramSegmenter:
    """The segmentation of a unigram model (Kudo, 2018; arXiv:1804.10959), without normalisation.

    A text is cut into the pieces of a vocabulary that have the highest sum of scores. Sums are
    rounded to float32 after each addition, from left to right; of several segmentations with the
    same sum, the one with the longest last piece is chosen. A character that is no piece becomes
    the unknown piece, whose score is 10 below the lowest score of all pieces. The object is
    immutable, so it is safe to use from several threads.
    """

    def __init__(
        self,
        texts: NDArray[np.uint8],
        starts: NDArray[np.uint32],
        scores: NDArray[np.float32],
        unknown: int,
    ) -> None:
        """Copies a vocabulary of n pieces.

        * `texts`: uint8[t], the texts of all pieces in UTF-8, one after another.
        * `starts`: uint32[n + 1], where each text begins, and t. No text is empty.
        * `scores`: float32[n].
        * `unknown`: the id of the unknown piece. Its text is found in no text.

        If two pieces have the same text, the later one is used. Raises ValueError for other shapes,
        starts that do not ascend, and an unknown piece that does not exist.
        """

    def encode(self, texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the ids of all texts, int32[t], and where each text begins, int64[n + 1].

        An empty text has no ids. The last entry of the second array is t. Takes linear time, and
        releases the GIL.

        Raises UnicodeEncodeError for a lone surrogate, TypeError for an object that is no text,
        and MemoryError.
        """
