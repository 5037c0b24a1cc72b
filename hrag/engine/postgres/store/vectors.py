"""Encodes query vectors as statement parameters in pgvector's binary format.

A parameter is sent without a type. A cast in the statement determines the type:
`%(v)b::halfvec`.
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
    """A query vector, `float32[dimension]`, that is compared with stored vectors."""

    values: NDArray[np.float32]


class _QueryVectorDumper(Dumper):
    format = pq.Format.BINARY
    oid = 0

    def dump(self, obj: QueryVector) -> Buffer:
        header = np.array([len(obj.values), 0], _HEADER)
        return header.tobytes() + obj.values.astype(_HALF).tobytes()


adapters.register_dumper(QueryVector, _QueryVectorDumper)
