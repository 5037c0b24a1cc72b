"""A table of vectors by text. They are computed once, and every peer looks them up.

A text without a vector is an error: the peer has chunked a document differently than when it listed
its leaves.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The vectors of hrag's built-in embedder have 512 dimensions.
DIMENSION = 512

_DIGEST_BYTES = 32


class UnknownText(Exception):
    """There is no vector for a text."""


class Vectors:
    """Unit vectors by text."""

    def __init__(self, keys: Sequence[bytes], rows: NDArray[np.float32]) -> None:
        """Creates the vectors.

        There is one key, made by `key_of`, for each row of `float32[n, DIMENSION]`.
        """
        self._rows = rows
        self._rows_by_key = {key: row for row, key in enumerate(keys)}

    @classmethod
    def load(cls, path: Path) -> "Vectors":
        """Returns the vectors in a file that `save` wrote."""
        with np.load(path) as stored:
            keys: NDArray[Any] = stored["keys"]
            return cls([key.tobytes() for key in keys], stored["rows"])

    @classmethod
    def of_texts(cls, texts: Sequence[str], rows: NDArray[np.float32]) -> "Vectors":
        """Returns the vectors of texts that all differ, with a row for each text."""
        return cls(list(map(key_of, texts)), rows)

    def __contains__(self, key: bytes) -> bool:
        return key in self._rows_by_key

    def with_more(self, keys: Sequence[bytes], rows: NDArray[np.float32]) -> "Vectors":
        """Returns these vectors and more, whose keys must be new."""
        return Vectors([*self._rows_by_key, *keys], np.concatenate([self._rows, rows]))

    def save(self, path: Path) -> None:
        """Writes the vectors to a file, which `load` reads."""
        keys = np.frombuffer(b"".join(self._rows_by_key), np.uint8).reshape(-1, _DIGEST_BYTES)
        np.savez(path, keys=keys, rows=self._rows)

    def rows_of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns the vectors of these texts in order: `float32[texts, DIMENSION]`.

        Raises UnknownText if a text has no vector.
        """
        try:
            return self._rows[[self._rows_by_key[key_of(text)] for text in texts]]
        except KeyError:
            unknown = next(text for text in texts if key_of(text) not in self._rows_by_key)
            raise UnknownText(f"no vector for {unknown[:80]!r} ({len(unknown)} long)") from None

    def list_of(self, text: str) -> list[float]:
        """Returns one vector as a list, which some libraries need."""
        numbers: list[float] = self.rows_of([text])[0].tolist()
        return numbers


def key_of(text: str) -> bytes:
    """Returns the key of a text: its SHA-256 digest."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
