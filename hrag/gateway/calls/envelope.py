"""The frames of Connect's streams: one byte of flags, four bytes of length, and the message.

See https://connectrpc.com/docs/protocol#streaming-rpcs.
"""

import struct

from hrag.gateway.http.connect_error import ConnectError
from hrag.gateway.protojson.json_reader import BODY
from hrag.gateway.protojson.json_writer import dumped
from hrag.values.errors import InvalidArgument, NotSupported

_HEAD = struct.Struct(">BI")
_COMPRESSED = 1
_END = 2


def framed(message: bytes) -> bytes:
    """Returns the frame of a message."""
    return _HEAD.pack(0, len(message)) + message


def end_frame(error: ConnectError | None) -> bytes:
    """Returns the last frame of a stream, with the error that ended it, if any."""
    message = dumped({} if error is None else {"error": error.as_json()})
    return _HEAD.pack(_END, len(message)) + message


def only_message(body: bytes) -> bytes:
    """Returns the message in a body that consists of exactly one frame.

    Raises InvalidArgument for any other body, and NotSupported for a compressed frame.
    """
    if len(body) < _HEAD.size:
        raise InvalidArgument(
            f"the body has {len(body)} bytes; it must be one frame, which has at least "
            f"{_HEAD.size} bytes",
            field=BODY,
        )
    flags, length = _HEAD.unpack_from(body)
    if flags == _COMPRESSED:
        raise NotSupported("the frame in the body is compressed; send it uncompressed")
    if flags or length != len(body) - _HEAD.size:
        raise InvalidArgument(
            f"the body has {len(body) - _HEAD.size} bytes after the head of a frame with "
            f"the flags {flags} and the length {length}; it must be one frame",
            field=BODY,
        )
    return body[_HEAD.size :]
