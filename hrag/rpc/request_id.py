"""By what a call is told from others in logs: an id.

It is the caller's own, from the metadata `x-request-id`, if it may stand in a log; else one
is made up. It goes back with the response, so that a caller can quote it.
"""

import re
from random import getrandbits

import grpc

REQUEST_ID = "x-request-id"
_GIVEN = re.compile(r"[\x21-\x7e]{1,64}")


def request_id(context: grpc.ServicerContext) -> str:
    """The caller's id of the call, or a new one where it has none that is short and plain."""
    for key, value in context.invocation_metadata():
        if key == REQUEST_ID and isinstance(value, str) and _GIVEN.fullmatch(value):
            return value
    return f"{getrandbits(64):016x}"
