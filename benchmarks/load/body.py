"""A search as the bytes that gRPC puts into an HTTP/2 body, for tools that know no gRPC."""

import struct
from dataclasses import replace

from benchmarks.load.work import Work

_UNCOMPRESSED = 0


def framed(message: bytes) -> bytes:
    """A message behind its flag and its length: one byte, then four, big-endian."""
    return struct.pack(">BI", _UNCOMPRESSED, len(message)) + message


def search(work: Work) -> bytes:
    """The first search of a load that only searches, for the first tenant alone."""
    own = replace(work, tenants=1, write_share=0.0)
    data: bytes = own.call(0).request.SerializeToString()
    return data
