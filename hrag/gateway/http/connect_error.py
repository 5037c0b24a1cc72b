"""Converts errors to the form of the Connect protocol: code, message, details and HTTP status.

Errors of the services and errors of the gateway itself have the same form.
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
from hrag.observe import metrics
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
# gRPC's message if there is no connection to a service begins with these words.
_NOT_CONNECTED = "failed to connect"
_KNOWN_DETAILS = {
    message_class.DESCRIPTOR.full_name: message_class
    for message_class in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.QuotaFailure,
        error_details_pb2.RetryInfo,
    )
}


@dataclass(frozen=True, slots=True)
class ConnectError:
    """The error of a call that failed, in the form of the Connect protocol."""

    code: grpc.StatusCode
    message: str
    details: tuple[Any, ...] = ()
    """Messages packed as `google.protobuf.Any`."""

    @property
    def http_status(self) -> int:
        """The status of an HTTP response whose body is only this error."""
        return _HTTP_STATUS[self.code]

    def as_json(self) -> dict[str, Any]:
        """Returns code, message and details as JSON values."""
        members: dict[str, Any] = {"code": _NAMES[self.code], "message": self.message}
        if self.details:
            members["details"] = [_detail_as_json(detail) for detail in self.details]
        return members

    def encoded(self) -> bytes:
        """Returns the error as an encoded JSON document."""
        return dumped(self.as_json())

    def headers(self) -> dict[str, str]:
        """Returns the headers that ask an HTTP client to retry later or to authenticate."""
        headers = {}
        if self.code is _CODE.UNAUTHENTICATED:
            headers["www-authenticate"] = "Bearer"
        for retry_info in self._unpacked(error_details_pb2.RetryInfo):
            seconds = math.ceil(retry_info.retry_delay.ToNanoseconds() / 1e9)
            headers["retry-after"] = str(max(seconds, 1))
        return headers

    def hrag_error(self) -> HragError:
        """Returns the error as an instance of its class in `hrag.errors`."""
        reasons = [info.reason for info in self._unpacked(error_details_pb2.ErrorInfo)]
        fields = [
            violation.field
            for bad_request in self._unpacked(error_details_pb2.BadRequest)
            for violation in bad_request.field_violations
        ]
        grpc_code = self.code.value[0]
        return status_codes.from_reason(
            (reasons or [""])[0], grpc_code, self.message, (fields or [""])[0]
        )

    def _unpacked(self, kind: type[Message]) -> list[Any]:
        return [
            kind.FromString(detail.value) for detail in self.details if detail.Is(kind.DESCRIPTOR)
        ]


def error_of(failure: Exception) -> ConnectError:
    """Converts an exception of `hrag.errors` or of gRPC to a ConnectError.

    An exception of `hrag.errors` is an error of the gateway itself: if it refuses a request, it is
    counted in the metrics.
    """
    if isinstance(failure, HragError):
        metrics.http_request_refused(failure)
        ending = status_codes.to_status(failure)
        return _error(ending.code, ending.details, ending.trailing_metadata)
    assert isinstance(failure, grpc.aio.AioRpcError)
    message = failure.details() or ""
    if failure.code() is _CODE.UNAVAILABLE and message.startswith(_NOT_CONNECTED):
        message = (
            "the gateway cannot connect to the service, which may not be running; if it serves "
            f"with TLS, set HRAG_CA_FILE for the gateway ({message})"
        )
    return _error(failure.code(), message, failure.trailing_metadata() or ())


def _error(code: grpc.StatusCode, message: str, trailers: Any) -> ConnectError:
    raw = next((value for key, value in trailers if key == _DETAILS), b"")
    return ConnectError(code, message, tuple(status_pb2.Status.FromString(raw).details))


def _detail_as_json(packed: Any) -> dict[str, Any]:
    name = packed.type_url.rpartition("/")[2]
    value = base64.b64encode(packed.value).decode().rstrip("=")
    members: dict[str, Any] = {"type": name, "value": value}
    if name in _KNOWN_DETAILS:
        message = _KNOWN_DETAILS[name].FromString(packed.value)
        members["debug"] = json_format.MessageToDict(message)
    return members
