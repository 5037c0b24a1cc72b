"""Request ids: the id that identifies a call in logs and in its response.

A caller may choose the id of a call in the metadata `x-request-id`. A valid id has 1 to 64
printable ASCII characters and no spaces. If the caller chooses no id or an invalid id, the id is
random. The response contains the id, so that a caller can name it when reporting a problem.
"""

import re
from itertools import islice
from random import getrandbits

import grpc

from hrag.values.limits import MAX_CALL_METADATA_PAIRS
from hrag.wire.stream_admission import REQUEST_ID

_VALID = re.compile(r"[\x21-\x7e]{1,64}")


def request_id(context: grpc.ServicerContext) -> str:
    """Returns the request id that the caller chose, if it is valid, else a random id.

    Reads only as many pairs of metadata as a call may have.
    """
    for key, value in islice(context.invocation_metadata(), MAX_CALL_METADATA_PAIRS):
        if key == REQUEST_ID and isinstance(value, str) and is_request_id(value):
            return value
    return new_request_id()


def is_request_id(value: str) -> bool:
    """Returns True if `value` has 1 to 64 printable ASCII characters and no spaces."""
    return _VALID.fullmatch(value) is not None


def new_request_id() -> str:
    """Returns a random id of 16 hex digits."""
    return f"{getrandbits(64):016x}"
