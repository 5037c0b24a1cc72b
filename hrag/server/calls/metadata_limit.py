"""The limit of metadata pairs of a call, checked before anything reads the pairs.

HTTP/2 compresses headers: one byte can refer to a header that was sent before. So a caller without
a credential can send tens of thousands of pairs in a few kilobytes. gRPC's limits of metadata
(`grpc.max_metadata_size`, `grpc.absolute_max_metadata_size`) apply only after the client has
acknowledged the server's SETTINGS, and a client may never do that.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import structlog

from hrag.host.connections import end_connection
from hrag.observe import metrics
from hrag.observe.refusal_limiter import Refusal
from hrag.server.admission.arrival import Behavior
from hrag.server.admission.lane import Lane
from hrag.server.calls import guard
from hrag.server.calls.call import REFUSALS, CallLimits, ServedMethod, ServerCall
from hrag.server.calls.guard import CallGuard
from hrag.values.current_call import CURRENT
from hrag.values.errors import InvalidArgument
from hrag.values.limits import MAX_CALL_METADATA_PAIRS

# No client sends so many pairs by mistake. The connection of such a call is ended, because each
# further call would cost the server a hundred times the bytes that it costs the caller.
_MAX_PAIRS_OF_CONNECTION = 4 * MAX_CALL_METADATA_PAIRS
_UNKNOWN = "unknown"
_ENDED = Refusal("connection_ended", _UNKNOWN, "")

_log = structlog.get_logger()


class MetadataLimiter(grpc.ServerInterceptor):
    """Rejects calls with too many metadata pairs.

    It must be the first interceptor, because other interceptors, for example those for tracing,
    read all pairs.
    """

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits

    def intercept_service(
        self, continuation: Callable[[Any], Any], call: grpc.HandlerCallDetails
    ) -> Any:
        """Returns the handler of the call, or a handler that rejects the call."""
        pairs = len(call.invocation_metadata)
        if pairs <= MAX_CALL_METADATA_PAIRS:
            return continuation(call)
        reject = self._rejection(call.method, pairs)
        if pairs > _MAX_PAIRS_OF_CONNECTION:
            reject = partial(_reject_connection, reject)
        # gRPC reads no message before it starts the handler of a stream.
        return grpc.stream_stream_rpc_method_handler(reject)

    def _rejection(self, method: str, pairs: int) -> Behavior:
        # Callers choose the names of unknown methods, so these names must not become labels.
        name = method if method in guard.RULES or method in guard.OPEN else _UNKNOWN
        served = ServedMethod(name, bytes, bytes, Lane.REJECTED)
        rejected = ServerCall(served, CallGuard(name, None, self._limits.rates, ()), self._limits)
        CURRENT.set(rejected)
        problem = f"the call has {pairs} metadata pairs; {MAX_CALL_METADATA_PAIRS} are allowed"
        return rejected.rejection(InvalidArgument(problem, field="metadata"))


def _reject_connection(reject: Behavior, request: Any, context: grpc.ServicerContext) -> Any:
    peer = context.peer()
    if end_connection(peer):
        metrics.connections_ended.inc()
        if REFUSALS.allows(_ENDED):
            _log.warning("connection_ended", peer=peer, problem="far too many metadata pairs")
    return reject(request, context)
