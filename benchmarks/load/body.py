"""A search as the bytes of an HTTP/2 body, for load generators without gRPC."""

import struct
from dataclasses import replace

from benchmarks.load.work import Work

_UNCOMPRESSED = 0


def framed(message: bytes) -> bytes:
    """Returns the message with gRPC's prefix: a flag of one byte and a big-endian 32-bit length."""
    return struct.pack(">BI", _UNCOMPRESSED, len(message)) + message


def search(work: Work) -> bytes:
    """Returns the first search of a load without writes and of one tenant, encoded."""
    own = replace(work, tenants=1, write_share=0.0)
    data: bytes = own.call(0).request.SerializeToString()
    return data
