"""Errors as the Connect protocol has them: code, message, details, and the status of HTTP.

One form for all that can fail: what a service answered, and what the gateway itself refuses.
See https://connectrpc.com/docs/protocol#error-codes.
"""

import base64
import math
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from hrag.gateway.protojson.json_writer import dumped
from hrag.values.errors import HragError
from hrag.wire import status_codes

_CODE = grpc.StatusCode
_HTTP_STATUS = {
    _CODE.CANCELLED: 499,
    _CODE.UNKNOWN: 500,
    _CODE.INVALID_ARGUMENT: 400,
    _CODE.DEADLINE_EXCEEDED: 504,
    _CODE.NOT_FOUND: 404,
    _CODE.ALREADY_EXISTS: 409,
    _CODE.PERMISSION_DENIED: 403,
    _CODE.RESOURCE_EXHAUSTED: 429,
    _CODE.FAILED_PRECONDITION: 400,
    _CODE.ABORTED: 409,
    _CODE.OUT_OF_RANGE: 400,
    _CODE.UNIMPLEMENTED: 501,
    _CODE.INTERNAL: 500,
    _CODE.UNAVAILABLE: 503,
    _CODE.DATA_LOSS: 500,
    _CODE.UNAUTHENTICATED: 401,
}
_NAMES = {code: code.name.lower() for code in _CODE} | {_CODE.CANCELLED: "canceled"}
_DETAILS = "grpc-status-details-bin"
_KNOWN_DETAILS = {
    each.DESCRIPTOR.full_name: each
    for each in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.QuotaFailure,
        error_details_pb2.RetryInfo,
    )
}


@dataclass(frozen=True, slots=True)
class ConnectError:
    """The end of a call that failed."""

    code: grpc.StatusCode
    message: str
    details: tuple[Any, ...] = ()
    """Messages packed as `google.protobuf.Any`."""

    @property
    def http_status(self) -> int:
        """The status of an HTTP response that holds this error and nothing else."""
        return _HTTP_STATUS[self.code]

    def as_json(self) -> dict[str, Any]:
        """Returns code, message and details as values of JSON."""
        found: dict[str, Any] = {"code": _NAMES[self.code], "message": self.message}
        if self.details:
            found["details"] = [_detail_as_json(each) for each in self.details]
        return found

    def encoded(self) -> bytes:
        """Returns the JSON document."""
        return dumped(self.as_json())

    def headers(self) -> dict[str, str]:
        """Returns the headers that tell HTTP clients what to do: wait, or authenticate."""
        found = {}
        if self.code is _CODE.UNAUTHENTICATED:
            found["www-authenticate"] = "Bearer"
        for each in self._unpacked(error_details_pb2.RetryInfo):
            seconds = math.ceil(each.retry_delay.ToNanoseconds() / 1e9)
            found["retry-after"] = str(max(seconds, 1))
        return found

    def hrag_error(self) -> HragError:
        """Returns the error as the class of `hrag.errors` that it stands for."""
        reasons = [each.reason for each in self._unpacked(error_details_pb2.ErrorInfo)]
        fields = [
            violation.field
            for each in self._unpacked(error_details_pb2.BadRequest)
            for violation in each.field_violations
        ]
        number = self.code.value[0]
        return status_codes.from_reason(
            (reasons or [""])[0], number, self.message, (fields or [""])[0]
        )

    def _unpacked(self, kind: type[Message]) -> list[Any]:
        return [kind.FromString(each.value) for each in self.details if each.Is(kind.DESCRIPTOR)]


def error_of(failure: Exception) -> ConnectError:
    """Returns the error of an exception of ours or of gRPC."""
    if isinstance(failure, HragError):
        ending = status_codes.to_status(failure)
        return _error(ending.code, ending.details, ending.trailing_metadata)
    assert isinstance(failure, grpc.aio.AioRpcError)
    return _error(failure.code(), failure.details() or "", failure.trailing_metadata() or ())


def _error(code: grpc.StatusCode, message: str, trailers: Any) -> ConnectError:
    raw = next((value for key, value in trailers if key == _DETAILS), b"")
    return ConnectError(code, message, tuple(status_pb2.Status.FromString(raw).details))


def _detail_as_json(packed: Any) -> dict[str, Any]:
    name = packed.type_url.rpartition("/")[2]
    value = base64.b64encode(packed.value).decode().rstrip("=")
    found: dict[str, Any] = {"type": name, "value": value}
    if name in _KNOWN_DETAILS:
        message = _KNOWN_DETAILS[name].FromString(packed.value)
        found["debug"] = json_format.MessageToDict(message)
    return found
