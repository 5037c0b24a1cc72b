"""The twins of `Q4Matrix` and `BertEncoder`: the same model in float64, without rounding."""

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

HEAD = 32
Floats = NDArray[np.float64]
_erf = np.vectorize(math.erf, otypes=[np.float64])


class Q4Matrix:
    """The twin of `hrag_fast.Q4Matrix`."""

    def __init__(
        self, blocks: NDArray[np.uint8], biases: NDArray[np.float32], path: str | None = None
    ) -> None:
        """Converts the codes to floats. `path` is ignored."""
        self._numbers = numbers_of(blocks).T
        self._biases = biases

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        return self._numbers.shape

    def products(self, rows: Floats) -> Floats:
        """Returns the products of rows and the matrix, plus the biases."""
        return rows @ self._numbers + self._biases


class BertEncoder:
    """The twin of `hrag_fast.BertEncoder`."""

    def __init__(
        self,
        table: NDArray[np.uint8],
        positions: NDArray[np.float32],
        weights: Mapping[str, Q4Matrix | NDArray[np.float32]],
        layer_count: int,
        epsilon: float,
    ) -> None:
        """Stores the weights."""
        self._table = table
        self._positions = positions
        self._weights = weights
        self._layer_count = layer_count
        self._epsilon = epsilon

    def encode(self, ids: NDArray[np.int32], starts: NDArray[np.int64]) -> Floats:
        """Returns the mean of the vectors of each text's tokens."""
        texts = [ids[start:end] for start, end in pairwise(starts)]
        return np.array([self._vectors(text).mean(axis=0) for text in texts])

    def _vectors(self, ids: NDArray[np.int32]) -> Floats:
        values = numbers_of(self._table[ids]) + self._positions[: len(ids)] + self._vector("type")
        values = self._normalised(values, "gains", "biases")
        for i in range(self._layer_count):
            more = self._product(f"output{i}", self._attention(i, values))
            values = self._normalised(values + more, f"output_gains{i}", f"output_biases{i}")
            inner = self._product(f"inner{i}", values)
            more = self._product(f"outer{i}", inner * (1 + _erf(inner / math.sqrt(2))) / 2)
            values = self._normalised(values + more, f"outer_gains{i}", f"outer_biases{i}")
        return values

    def _attention(self, layer: int, values: Floats) -> Floats:
        rows = self._product(f"attention{layer}", values)
        heads = rows.reshape(len(rows), 3, -1, HEAD).transpose(1, 2, 0, 3)
        queries, keys, head_values = heads
        scores = queries @ keys.transpose(0, 2, 1) / math.sqrt(HEAD)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        context: Floats = (weights @ head_values).transpose(1, 0, 2).reshape(len(rows), -1)
        return context

    def _product(self, name: str, rows: Floats) -> Floats:
        matrix = self._weights[name]
        assert isinstance(matrix, Q4Matrix)
        return matrix.products(rows)

    def _normalised(self, values: Floats, gains: str, biases: str) -> Floats:
        centred = values - values.mean(axis=1, keepdims=True)
        variances = (centred**2).mean(axis=1, keepdims=True)
        normal: Floats = centred / np.sqrt(variances + self._epsilon)
        return normal * self._vector(gains) + self._vector(biases)

    def _vector(self, name: str) -> NDArray[np.float32]:
        vector = self._weights[name]
        assert not isinstance(vector, Q4Matrix)
        return vector


def numbers_of(blocks: NDArray[np.uint8]) -> Floats:
    """Returns the numbers of blocks, float64[n, 32 b] for uint8[n, b, 18]."""
    scales = blocks[:, :, :2].copy().view("<f2").astype(np.float64)
    pairs = blocks[:, :, 2:]
    codes = np.concatenate([pairs % 16, pairs // 16], axis=2).astype(np.float64) - 8
    return (codes * scales).reshape(len(blocks), -1)
