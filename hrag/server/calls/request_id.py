"""Request ids: the id that identifies a call in logs and in its response.

It is the caller's own, from the metadata `x-request-id`, if that is short and printable;
otherwise a random one. The response returns it, so that callers can quote it.
"""

import re
from random import getrandbits

import grpc

REQUEST_ID = "x-request-id"
_VALID = re.compile(r"[\x21-\x7e]{1,64}")


def request_id(context: grpc.ServicerContext) -> str:
    """Returns the caller's valid request id, else a random one of 16 hex digits."""
    for key, value in context.invocation_metadata():
        if key == REQUEST_ID and isinstance(value, str) and is_request_id(value):
            return value
    return new_request_id()


def is_request_id(value: str) -> bool:
    """True if a caller may name a call so."""
    return _VALID.fullmatch(value) is not None


def new_request_id() -> str:
    """Returns a random id of 16 hex digits."""
    return f"{getrandbits(64):016x}"
