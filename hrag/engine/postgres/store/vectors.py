"""Vectors as parameters of statements, in pgvector's binary form.

A parameter is sent without a type, so that a cast in the statement decides: `%(v)b::halfvec`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from psycopg import adapters, pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper

_HEADER = np.dtype(">u2")
_HALF = np.dtype(">f2")


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A vector, `float32[dimension]`, to compare stored ones with."""

    values: NDArray[np.float32]


class _QueryVectorDumper(Dumper):
    format = pq.Format.BINARY
    oid = 0

    def dump(self, obj: QueryVector) -> Buffer:
        header = np.array([len(obj.values), 0], _HEADER)
        return header.tobytes() + obj.values.astype(_HALF).tobytes()


adapters.register_dumper(QueryVector, _QueryVectorDumper)
