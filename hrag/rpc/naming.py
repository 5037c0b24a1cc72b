"""By what a call is told from others in logs: an id, and whose it is.

The id is the caller's own, from the metadata `x-request-id`, if it may stand in a log; else
one is made up. It goes back with the response, so that a caller can quote it.
"""

import re
from contextlib import suppress
from random import getrandbits
from typing import Any

import grpc

from hrag import ids
from hrag.errors import InvalidArgument
from hrag.v1 import retriever_pb2

REQUEST_ID = "x-request-id"
_GIVEN = re.compile(r"[\x21-\x7e]{1,64}")


def request_id(context: grpc.ServicerContext) -> str:
    """The caller's id of the call, or a new one where it has none that is short and plain."""
    for key, value in context.invocation_metadata():
        if key == REQUEST_ID and isinstance(value, str) and _GIVEN.fullmatch(value):
            return value
    return f"{getrandbits(64):016x}"


def tenant_of(request: Any) -> str:
    """Whose a request is, a batch by its first search; "" if that can be nobody's name."""
    if isinstance(request, retriever_pb2.AnswerRequest):
        request = request.search
    elif isinstance(request, retriever_pb2.BatchSearchRequest):
        request = next(iter(request.searches), None)
    with suppress(InvalidArgument):  # Whatever stands there may be a text.
        return ids.check_tenant_id(getattr(request, "tenant_id", ""))
    return ""
