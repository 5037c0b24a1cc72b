"""Errors become gRPC statuses on the server, and statuses become errors in the client."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from hrag import errors
from hrag.errors import HragError
from hrag.wire import status_codes

# The limit of gRPC for the size of the trailers of a call, by default.
_MAX_TRAILER_BYTES = 8 * 1024


def _subclasses(cls: type[HragError]) -> Iterator[type[HragError]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


ERROR_CLASSES = sorted(
    (cls for cls in set(_subclasses(HragError)) if cls.__module__ == HragError.__module__),
    key=lambda cls: cls.__name__,
)


class FailedCall:
    """A failed call, with the interface of an exception that a gRPC client receives."""

    def __init__(self, status: Any) -> None:
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status.code

    def details(self) -> str:
        return self._status.details

    def trailing_metadata(self) -> Any:
        return self._status.trailing_metadata


def _details(error: HragError) -> status_pb2.Status:
    trailers = dict(status_codes.to_status(error).trailing_metadata)
    return status_pb2.Status.FromString(trailers["grpc-status-details-bin"])


def test_every_error_class_is_in_the_table() -> None:
    assert set(status_codes.TABLE) == set(ERROR_CLASSES)


def test_reasons_are_unique() -> None:
    reasons = [situation.reason for situation in status_codes.TABLE.values()]
    assert len(set(reasons)) == len(reasons)


@pytest.mark.parametrize("cls", ERROR_CLASSES)
@pytest.mark.parametrize("field", ["", "limit"])
def test_a_client_receives_class_message_and_field_of_the_error(
    cls: type[HragError], field: str
) -> None:
    received = status_codes.error_from(
        FailedCall(status_codes.to_status(cls("limit is 0; 1 to 100", field=field)))
    )
    assert type(received) is cls
    assert (received.message, received.field) == ("limit is 0; 1 to 100", field)


@given(st.text(max_size=200), st.sampled_from(ERROR_CLASSES))
def test_a_client_receives_any_message_unchanged(message: str, cls: type[HragError]) -> None:
    assert (
        status_codes.error_from(FailedCall(status_codes.to_status(cls(message)))).message == message
    )


def test_a_status_has_the_code_of_its_error_in_the_table() -> None:
    for cls, situation in status_codes.TABLE.items():
        assert status_codes.to_status(cls("no")).code is situation.code


def test_an_unlisted_subclass_has_the_status_of_its_base_class() -> None:
    class PageMissing(errors.DocumentNotFound):
        pass

    assert (
        status_codes.situation_of(PageMissing("no")) == status_codes.TABLE[errors.DocumentNotFound]
    )


@pytest.mark.parametrize("cls", ERROR_CLASSES)
def test_retry_info_is_sent_exactly_for_retryable_errors(cls: type[HragError]) -> None:
    info = error_details_pb2.RetryInfo()
    is_sent = any(detail.Unpack(info) for detail in _details(cls("no")).details)
    retry_s = status_codes.TABLE[cls].retry_s
    assert is_sent == (retry_s is not None)
    assert info.retry_delay.ToSeconds() == (retry_s or 0)


def test_the_details_of_a_status_are_google_rpc_messages() -> None:
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    first, second = _details(errors.TooLarge("text is long", field="text")).details
    assert first.Unpack(info)
    assert second.Unpack(request)
    assert (info.reason, info.domain) == ("TOO_LARGE", "hrag")
    (violation,) = request.field_violations
    assert (violation.field, violation.description) == ("text", "text is long")


def test_clients_do_not_retry_calls_that_the_service_has_retried() -> None:
    pushback = ("grpc-retry-pushback-ms", "-1")
    retried = status_codes.to_status(errors.EmbedderUnavailable("down"))
    starting = status_codes.to_status(errors.ServiceUnavailable("starting"))
    assert pushback in tuple(retried.trailing_metadata)
    assert pushback not in tuple(starting.trailing_metadata)


def test_a_message_too_long_for_the_trailers_is_truncated() -> None:
    error = errors.InvalidArgument("level_sizes is 1,2,3" * 1000, field="level_sizes")
    status = status_codes.to_status(error)
    assert len(status.details) + sum(len(value) for _, value in status.trailing_metadata) < (
        _MAX_TRAILER_BYTES
    )
    received = status_codes.error_from(FailedCall(status))
    assert received.message.startswith("level_sizes is 1,2,3")
    assert received.message.endswith("…")


class CallFailedAtProxy:
    """A call that failed at a proxy, so its status has no details from hrag."""

    def __init__(self, code: grpc.StatusCode, details: str | None) -> None:
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str | None:
        return self._details

    def trailing_metadata(self) -> Any:
        return ()


@pytest.mark.parametrize(
    ("code", "details", "cls"),
    [
        (grpc.StatusCode.UNAVAILABLE, "connection refused", errors.ServiceUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.DeadlineExceeded),
        (grpc.StatusCode.CANCELLED, "Channel closed!", errors.ServiceUnavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!", errors.TooBusy),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "SERVER: Received message larger than max (9 vs. 5)",
            errors.TooLarge,
        ),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", errors.InternalError),
        (grpc.StatusCode.UNKNOWN, None, errors.InternalError),
    ],
)
def test_a_status_without_details_from_hrag_becomes_the_error_of_its_code(
    code: grpc.StatusCode, details: str | None, cls: type[HragError]
) -> None:
    received = status_codes.error_from(CallFailedAtProxy(code, details))
    assert type(received) is cls
    assert received.message == (details or "")


def test_an_unknown_reason_becomes_the_error_of_the_status_code() -> None:
    received = status_codes.from_reason(
        "QUOTA_SPENT", grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], "no", ""
    )
    assert type(received) is errors.TooBusy
    assert type(status_codes.from_reason("NEW", 99, "no", "")) is errors.InternalError


@pytest.mark.parametrize("message", ["太长的消息" * 500, "a lone surrogate \ud800", "é" * 1001])
def test_any_message_fits_the_trailers(message: str) -> None:
    status = status_codes.to_status(errors.InvalidArgument(message, field="text"))
    # In the trailer grpc-message, percent-encoding turns a non-ASCII byte into 3 characters.
    encoded_bytes = 3 * len(status.details.encode())
    assert encoded_bytes + sum(len(value) * 4 / 3 for _, value in status.trailing_metadata) < (
        _MAX_TRAILER_BYTES
    )
    assert status_codes.error_from(FailedCall(status)).field == "text"


def test_a_storage_quota_error_has_a_quota_failure_and_no_field_violation():
    error = errors.StorageQuotaExceeded("full", field="bytes", tenant_id="acme")
    info, quota = error_details_pb2.ErrorInfo(), error_details_pb2.QuotaFailure()
    first, second = _details(error).details
    assert first.Unpack(info)
    assert second.Unpack(quota)
    assert info.reason == "STORAGE_QUOTA_EXCEEDED"
    (violation,) = quota.violations
    assert (violation.subject, violation.quota_metric) == ("tenant:acme", "bytes")
    assert violation.description == "full"


@pytest.mark.parametrize("cls", [errors.RateQuotaExceeded, errors.StorageQuotaExceeded])
def test_quota_errors_keep_their_details(cls):
    error = cls("spent", field="calls", retry_s=0.0375, tenant_id="acme")
    received = status_codes.error_from(FailedCall(status_codes.to_status(error)))
    assert type(received) is cls
    assert (received.field, received.retry_s, received.tenant_id) == ("calls", 0.0375, "acme")


@pytest.mark.parametrize(
    ("error", "pushback"),
    [
        (errors.RateQuotaExceeded("spent", retry_s=0.0371), ["38"]),
        (errors.RateQuotaExceeded("spent", retry_s=90), ["90000"]),
        (errors.StorageQuotaExceeded("full"), ["-1"]),
        (errors.StorageFull("the disk is full"), []),
    ],
)
def test_pushback_sets_the_delay_of_a_clients_retry_policy(error, pushback):
    trailers = status_codes.to_status(error).trailing_metadata
    assert [value for key, value in trailers if key == "grpc-retry-pushback-ms"] == pushback


def test_the_retry_delay_of_an_error_overrides_the_delay_in_the_table():
    info = error_details_pb2.RetryInfo()
    details = _details(errors.RateQuotaExceeded("spent", retry_s=0.25)).details
    assert any(detail.Unpack(info) for detail in details)
    assert info.retry_delay.ToMilliseconds() == 250
