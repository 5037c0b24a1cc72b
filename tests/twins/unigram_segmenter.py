"""The twin of `UnigramSegmenter`: it tries every piece at every position of a text."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

UNKNOWN_PENALTY = np.float32(10)


class UnigramSegmenter:
    """The twin of `hrag_fast.UnigramSegmenter`, which `_unigram.pyi` documents."""

    def __init__(
        self,
        texts: NDArray[np.uint8],
        starts: NDArray[np.uint32],
        scores: NDArray[np.float32],
        unknown: int,
    ) -> None:
        """Copies a vocabulary."""
        data = texts.tobytes()
        self._ids = {
            data[start:end].decode(): i
            for i, (start, end) in enumerate(pairwise(starts))
            if i != unknown
        }
        self._scores = scores
        self._unknown = unknown
        self._unknown_score = scores.min() - UNKNOWN_PENALTY
        self._longest = max(map(len, self._ids), default=1)

    def encode(self, texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the ids of all texts, and where each text begins."""
        parts = [self._segments(text) for text in texts]
        starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return np.array([i for part in parts for i in part], np.int32), starts

    def _segments(self, text: str) -> list[int]:
        best = [(np.float32(0), 0, -1)]  # For each position: the sum, the last start, the last id.
        for end in range(1, len(text) + 1):
            choices = []
            for start in range(max(0, end - self._longest), end):
                i = self._ids.get(text[start:end])
                if i is not None:
                    choices.append((best[start][0] + self._scores[i], start, i))
            unknown = (best[end - 1][0] + self._unknown_score, end - 1, self._unknown)
            # If sums are equal, `max` takes the first choice. Its last piece is the longest.
            best.append(max([*choices, unknown], key=lambda choice: choice[0]))
        ids = []
        at = len(text)
        while at:
            _, at, i = best[at]
            ids.append(i)
        return ids[::-1]
