"""A search as the body of an HTTP/2 request, for load generators that do not know gRPC."""

import struct
from dataclasses import replace

from benchmarks.load.work import Work

_UNCOMPRESSED = 0


def framed(message: bytes) -> bytes:
    """Returns the message with gRPC's prefix: a flag of one byte and a big-endian 32-bit length."""
    return struct.pack(">BI", _UNCOMPRESSED, len(message)) + message


def search(work: Work) -> bytes:
    """Returns the encoded first search of a load that has no writes and only one tenant."""
    searches = replace(work, tenants=1, write_share=0.0)
    data: bytes = searches.call(0).request.SerializeToString()
    return data
