"""Sends bytes as requests and checks the outcome of each call.

A call may end only with the status codes that the proto documents for its method. It must not
reveal a secret of another tenant, and must end by itself before its deadline.
"""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.fuzz.messages import parts, readable, shortened
from tests.fuzz.world import OTHER, OWN, SECRET
from tests.support.methods import METHODS
from tests.support.until import PATIENCE_S

DEADLINE_S = PATIENCE_S
# This is the deadline of searches that wait for a sequence number that is never reached.
SHORT_S = 0.05
# This is the time limit for minimising a failing call.
SHRINKING_S = 30.0

_CODE = grpc.StatusCode
_PROTOS = Path(__file__).parents[2] / "protos" / "hrag" / "v1"
_RPC = re.compile(r"((?:^ *//.*\n)+) *rpc (\w+)\(", re.MULTILINE)
_PROMISE = re.compile(r"// +\* ((?:`[A-Z_]+`(?:, )?)+)(?: with the reason \w+)?:")
_AS_ANOTHER = re.compile(r"The errors of `(\w+)`")
# Any call may end with these codes. `Caller.problem` accepts DEADLINE_EXCEEDED only for searches
# that wait for a sequence number.
_ANY_CALL = frozenset(
    {_CODE.OK, _CODE.INVALID_ARGUMENT, _CODE.PERMISSION_DENIED, _CODE.DEADLINE_EXCEEDED}
)
# The protos document these codes, but no content of a message may cause them.
_NEVER = frozenset({_CODE.INTERNAL, _CODE.UNAVAILABLE, _CODE.UNAUTHENTICATED})
_WITH_SEARCHES = ("SearchRequest", "BatchSearchRequest", "AnswerRequest")
# Only these tenants have commits, so that a search for sequence number 1 does not wait.
_TENANTS = (OWN, OTHER)
_SURELY_COMMITTED = 1
_FAULTS = (b"internal error", b"Traceback")

_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
_REFLECTION = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
CALLS: dict[str, MethodDescriptor] = METHODS | {
    f"/{method.containing_service.full_name}/{method.name}": method
    for method in (*_HEALTH.methods, *_REFLECTION.methods)
}


def promised(method: MethodDescriptor) -> frozenset[grpc.StatusCode]:
    """Returns the status codes that the proto documents for a method."""
    if method.containing_service is _HEALTH:
        # Watch does not end by itself, so `Caller` cancels calls of Watch.
        return _ANY_CALL | {_CODE.NOT_FOUND, _CODE.CANCELLED}
    return (_ANY_CALL | _written().get(method.name, frozenset())) - _NEVER


def _written() -> dict[str, frozenset[grpc.StatusCode]]:
    """Returns the codes that the protos list for each method, by the name of the method."""
    codes_by_method: dict[str, frozenset[grpc.StatusCode]] = {}
    for file in ("indexer.proto", "retriever.proto"):
        for comment, name in _RPC.findall((_PROTOS / file).read_text("utf-8")):
            names = re.findall(r"`([A-Z_]+)`", " ".join(_PROMISE.findall(comment)))
            codes_by_method[name] = frozenset(_CODE[code] for code in names).union(
                *(codes_by_method[other] for other in _AS_ANOTHER.findall(comment))
            )
    return codes_by_method


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: its messages, status code, responses, trailers and duration."""

    sent: tuple[bytes, ...]
    code: grpc.StatusCode
    replies: tuple[bytes, ...]
    details: str
    trailers: tuple[bytes, ...]
    seconds: float

    @property
    def revealed(self) -> bytes:
        return b"".join((*self.replies, self.details.encode(), *self.trailers))


class Caller:
    """Calls one method, with the key of a tenant if `key` is not empty. Thread-safe."""

    def __init__(
        self,
        channel: grpc.Channel,
        path: str,
        key: str = "",
        deadline_s: float = DEADLINE_S,
        shrinking_s: float = SHRINKING_S,
    ) -> None:
        """`deadline_s` is the deadline of each call, `shrinking_s` the time limit of `smallest`."""
        self.method = CALLS[path]
        self._deadline_s = deadline_s
        self._shrinking_s = shrinking_s
        self._promised = promised(self.method)
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self._forbidden = (*_FAULTS, SECRET.encode()) if key else _FAULTS
        streams = (self.method.client_streaming, self.method.server_streaming)
        kind = "_".join("stream" if is_stream else "unary" for is_stream in streams)
        call = getattr(channel, kind)(path)
        self._start = call if self.method.server_streaming else call.future

    def feed(self, messages: Sequence[bytes]) -> Iterator[Outcome]:
        """Sends each message; yields the outcomes of the calls.

        If a message ends a stream, a new stream sends the messages that follow.
        """
        if not self.method.client_streaming:
            yield from (self.send((message,)) for message in messages)
            return
        remaining = tuple(messages)
        while remaining:
            outcome = self.send(remaining)
            yield outcome
            remaining = remaining[self._answered(outcome) + 1 :]

    def send(self, messages: tuple[bytes, ...]) -> Outcome:
        """Makes one call with the messages; returns its outcome."""
        request = iter(messages) if self.method.client_streaming else messages[0]
        timeout_s = SHORT_S if self._waits(messages) else self._deadline_s
        began = time.perf_counter()
        call = self._start(request, timeout=timeout_s, metadata=self._metadata)
        replies = []
        try:
            for reply in self._replies(call):
                replies.append(reply)
        except grpc.RpcError:
            pass
        return Outcome(
            sent=messages,
            code=call.code(),
            replies=tuple(replies),
            details=call.details() or "",
            trailers=tuple(_raw(value) for _, value in call.trailing_metadata() or ()),
            seconds=time.perf_counter() - began,
        )

    def problem(self, outcome: Outcome) -> str:
        """Returns a description of the promise that the outcome violates, or an empty string."""
        if outcome.code not in self._promised:
            return f"ended with {outcome.code.name}: {outcome.details}"
        if outcome.code is _CODE.DEADLINE_EXCEEDED and not self._waits(outcome.sent):
            return f"had not ended after {outcome.seconds:.1f} s"
        for words in self._forbidden:
            if words in outcome.revealed:
                return f"revealed {words.decode()}"
        for reply in outcome.replies:
            if readable(self.method.output_type, reply) is None:
                return f"sent a reply that cannot be read: {reply[:100].hex()}"
        return ""

    def smallest(self, outcome: Outcome) -> Outcome:
        """Minimises the messages of a failing call; returns the outcome of the smallest failure."""
        end = time.monotonic() + self._shrinking_s
        if len(outcome.sent) > 1:
            alone = (self.send((message,)) for message in outcome.sent)
            outcome = next(filter(self.problem, alone), outcome)
        while len(outcome.sent) == 1 and time.monotonic() < end:
            rests = shortened(self.method.input_type, outcome.sent[0])
            shorter = (self.send((raw,)) for raw in rests)
            failing = next(filter(self.problem, shorter), None)
            if failing is None:
                break
            outcome = failing
        return outcome

    def _replies(self, call: Any) -> Iterator[bytes]:
        if not self.method.server_streaming:
            yield call.result()
        elif self.method.name == "Watch":
            # Watch ends only when its caller leaves.
            yield next(call)
            call.cancel()
        else:
            yield from call

    def _waits(self, messages: Sequence[bytes]) -> bool:
        """Returns True if a message has a search that waits for a sequence number."""
        if self.method.input_type.name not in _WITH_SEARCHES:
            return False
        known = (readable(self.method.input_type, message) for message in messages)
        return any(
            part.min_sequence > (_SURELY_COMMITTED if part.tenant_id in _TENANTS else 0)
            for message in known
            if message is not None
            for part in parts(message)
            if part.DESCRIPTOR.name == "SearchRequest"
        )

    def _answered(self, outcome: Outcome) -> int:
        """Returns how many messages of a stream were answered before the stream ended."""
        read = (readable(self.method.output_type, reply) for reply in outcome.replies)
        return sum(len(getattr(reply, "outcomes", "1")) for reply in read)


def _raw(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
