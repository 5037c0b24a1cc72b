"""How a client learns that the server has admitted its stream, before the client sends a request.

A server that admits a stream sends the request id as initial metadata at once. A server that
refuses a stream sends only a status. grpc.aio loses this status if a request is sent while the
status arrives: the error is then "Internal error from Core". So the client waits for the decision.
"""

import asyncio
from contextlib import suppress
from typing import Any

REQUEST_ID = "x-request-id"
# A proxy may remove the request id from the initial metadata. In that case, a stream is regarded as
# admitted if it has no status after this time.
_STATUS_S = 1.0


async def is_admitted(call: Any) -> bool:
    """Waits until the server has admitted or refused a `grpc.aio` stream; returns True if admitted.

    If False is returned, the call has ended, and reading its next response raises an error with the
    reason.
    """
    metadata = await call.initial_metadata()
    if any(key == REQUEST_ID for key, _ in metadata):
        return True
    with suppress(TimeoutError):
        await asyncio.wait_for(call.code(), _STATUS_S)
    return not call.done()
