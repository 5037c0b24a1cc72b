"""The mapping between error classes and gRPC statuses, used by the server and by the client.

The server sends the status with `google.rpc` details: ErrorInfo with a stable reason, BadRequest
with the field, QuotaFailure with the quota, and RetryInfo for retryable errors. The client looks
up the error class by the reason.
"""

import math
from typing import Any, NamedTuple, cast

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from hrag.values import errors
from hrag.values.errors import HragError, QuotaExceeded

DOMAIN = "hrag"


class Situation(NamedTuple):
    """The gRPC status code and the reason of an error class. A reason is a name for clients.

    The reason of an error class never changes. `retry_s` is the delay before a retry in seconds;
    None means that a retry will not help.
    """

    code: grpc.StatusCode
    reason: str
    retry_s: float | None = None


_CODE = grpc.StatusCode
TABLE: dict[type[HragError], Situation] = {
    errors.InvalidArgument: Situation(_CODE.INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    errors.UnreadableDocument: Situation(_CODE.INVALID_ARGUMENT, "UNREADABLE_DOCUMENT"),
    errors.BlankDocument: Situation(_CODE.INVALID_ARGUMENT, "BLANK_DOCUMENT"),
    errors.TooLarge: Situation(_CODE.INVALID_ARGUMENT, "TOO_LARGE"),
    errors.Unauthenticated: Situation(_CODE.UNAUTHENTICATED, "UNAUTHENTICATED"),
    errors.PermissionDenied: Situation(_CODE.PERMISSION_DENIED, "PERMISSION_DENIED"),
    errors.CollectionNotFound: Situation(_CODE.NOT_FOUND, "COLLECTION_NOT_FOUND"),
    errors.DocumentNotFound: Situation(_CODE.NOT_FOUND, "DOCUMENT_NOT_FOUND"),
    errors.DocumentChanged: Situation(_CODE.ABORTED, "DOCUMENT_CHANGED"),
    errors.ChunkNotFound: Situation(_CODE.NOT_FOUND, "CHUNK_NOT_FOUND"),
    errors.OriginalNotFound: Situation(_CODE.NOT_FOUND, "ORIGINAL_NOT_FOUND"),
    errors.CollectionExists: Situation(_CODE.ALREADY_EXISTS, "COLLECTION_EXISTS"),
    errors.CollectionHasAliases: Situation(_CODE.FAILED_PRECONDITION, "COLLECTION_HAS_ALIASES"),
    errors.CopyInProgress: Situation(_CODE.FAILED_PRECONDITION, "COPY_IN_PROGRESS"),
    errors.AliasNotFound: Situation(_CODE.NOT_FOUND, "ALIAS_NOT_FOUND"),
    errors.NoSummaries: Situation(_CODE.FAILED_PRECONDITION, "NO_SUMMARIES"),
    errors.NoVectors: Situation(_CODE.FAILED_PRECONDITION, "NO_VECTORS"),
    errors.NoLexicalIndex: Situation(_CODE.FAILED_PRECONDITION, "NO_LEXICAL_INDEX"),
    errors.EmbedderMismatch: Situation(_CODE.FAILED_PRECONDITION, "EMBEDDER_MISMATCH"),
    errors.EmbedderRejected: Situation(_CODE.FAILED_PRECONDITION, "EMBEDDER_REJECTED"),
    errors.EmbedderUnavailable: Situation(_CODE.UNAVAILABLE, "EMBEDDER_UNAVAILABLE", 5.0),
    errors.ChatNotConfigured: Situation(_CODE.FAILED_PRECONDITION, "CHAT_NOT_CONFIGURED"),
    errors.ChatRejected: Situation(_CODE.FAILED_PRECONDITION, "CHAT_REJECTED"),
    errors.ChatUnavailable: Situation(_CODE.UNAVAILABLE, "CHAT_UNAVAILABLE", 5.0),
    errors.RerankerNotConfigured: Situation(_CODE.FAILED_PRECONDITION, "RERANKER_NOT_CONFIGURED"),
    errors.RerankerRejected: Situation(_CODE.FAILED_PRECONDITION, "RERANKER_REJECTED"),
    errors.RerankerUnavailable: Situation(_CODE.UNAVAILABLE, "RERANKER_UNAVAILABLE", 5.0),
    errors.SequenceNotReached: Situation(_CODE.DEADLINE_EXCEEDED, "SEQUENCE_NOT_REACHED"),
    errors.DeadlineExceeded: Situation(_CODE.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
    errors.Cancelled: Situation(_CODE.CANCELLED, "CANCELLED"),
    errors.StorageFull: Situation(_CODE.RESOURCE_EXHAUSTED, "STORAGE_FULL", 60.0),
    errors.TooBusy: Situation(_CODE.RESOURCE_EXHAUSTED, "TOO_BUSY", 1.0),
    errors.ReplyTooLarge: Situation(_CODE.RESOURCE_EXHAUSTED, "REPLY_TOO_LARGE"),
    errors.QuotaExceeded: Situation(_CODE.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED"),
    errors.RateQuotaExceeded: Situation(_CODE.RESOURCE_EXHAUSTED, "RATE_QUOTA_EXCEEDED", 1.0),
    errors.StorageQuotaExceeded: Situation(_CODE.RESOURCE_EXHAUSTED, "STORAGE_QUOTA_EXCEEDED"),
    errors.DataLoss: Situation(_CODE.DATA_LOSS, "DATA_LOSS"),
    errors.StoreUnavailable: Situation(_CODE.UNAVAILABLE, "STORE_UNAVAILABLE", 1.0),
    errors.StoreUnusable: Situation(_CODE.UNAVAILABLE, "STORE_UNUSABLE"),
    errors.FolderRefused: Situation(_CODE.UNAVAILABLE, "FOLDER_REFUSED"),
    errors.DatabaseRefused: Situation(_CODE.UNAVAILABLE, "DATABASE_REFUSED"),
    errors.StoreMissing: Situation(_CODE.UNAVAILABLE, "STORE_MISSING", 1.0),
    errors.ServiceUnavailable: Situation(_CODE.UNAVAILABLE, "SERVICE_UNAVAILABLE", 1.0),
    errors.NotSupported: Situation(_CODE.UNIMPLEMENTED, "NOT_SUPPORTED"),
    errors.InternalError: Situation(_CODE.INTERNAL, "INTERNAL"),
}

_CLASS_OF_REASON = {situation.reason: cls for cls, situation in TABLE.items()}

# The error classes for statuses without hrag's details. gRPC itself or a proxy sent such a status.
_CLASS_OF_CODE = {
    _CODE.INVALID_ARGUMENT: errors.InvalidArgument,
    _CODE.UNAUTHENTICATED: errors.Unauthenticated,
    _CODE.PERMISSION_DENIED: errors.PermissionDenied,
    _CODE.NOT_FOUND: errors.CollectionNotFound,
    _CODE.ALREADY_EXISTS: errors.CollectionExists,
    _CODE.RESOURCE_EXHAUSTED: errors.TooBusy,
    _CODE.UNAVAILABLE: errors.ServiceUnavailable,
    _CODE.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    _CODE.DATA_LOSS: errors.DataLoss,
    _CODE.CANCELLED: errors.ServiceUnavailable,
}
# The largest size of an error's message, in bytes of UTF-8. gRPC limits the trailers of a call to
# 8 KiB, and the trailers contain the message up to three times. One of these copies is
# percent-encoded, so each of its non-ASCII bytes needs three bytes. Three copies of a message of
# this size fit into the limit.
_MAX_MESSAGE_BYTES = 1000
_ELLIPSIS = "…"

# Calls that end with these errors must not be retried by gRPC in the client. If an endpoint of a
# model has failed, the service has already retried it for seconds, and retries by clients would
# multiply the attempts. If a storage quota is full or a reply is too large, a retry would fail in
# the same way. gRPC does not retry if the trailer `grpc-retry-pushback-ms` is negative.
_NO_GRPC_RETRY = (
    errors.EmbedderUnavailable,
    errors.ChatUnavailable,
    errors.StorageQuotaExceeded,
    errors.ReplyTooLarge,
)
_PUSHBACK = "grpc-retry-pushback-ms"
_SUBJECT = "tenant:"

# gRPC's error contains this text if a message is larger than gRPC's limit.
_LARGER_THAN_MAX = "larger than max"

_CODE_OF_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


def situation_of(error: HragError) -> Situation:
    """Returns the Situation of the error's class in TABLE.

    If TABLE does not contain the class, returns the Situation of its nearest base class in TABLE.
    """
    return next(TABLE[cls] for cls in type(error).__mro__ if cls in TABLE)


def message_of(error: HragError) -> str:
    """Returns the error's message, cut to 1,000 bytes of UTF-8.

    Lone surrogates, which UTF-8 cannot encode, are replaced by question marks.
    """
    raw = error.message.encode("utf-8", "replace")
    if len(raw) <= _MAX_MESSAGE_BYTES:
        return raw.decode()
    return raw[: _MAX_MESSAGE_BYTES - len(_ELLIPSIS.encode())].decode("utf-8", "ignore") + _ELLIPSIS


def to_status(error: HragError) -> grpc.Status:
    """Returns the gRPC status, with its details, that ends a call with `error`.

    The message of the status is cut to 1,000 bytes.
    """
    situation = situation_of(error)
    message = message_of(error)
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=situation.reason, domain=DOMAIN)]
    if isinstance(error, QuotaExceeded):
        details.append(_quota_failure(error, message))
    elif error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=message
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    retry_s = situation.retry_s if error.retry_s is None else error.retry_s
    if retry_s is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(retry_s * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    status: Any = rpc_status.to_status(
        status_pb2.Status(
            code=situation.code.value[0],
            message=message,
            details=[_pack(detail) for detail in details],
        )
    )
    pushback = _pushback(error, retry_s)
    status = status._replace(trailing_metadata=(*status.trailing_metadata, *pushback))
    return cast("grpc.Status", status)


def _quota_failure(error: QuotaExceeded, message: str) -> Message:
    violation = error_details_pb2.QuotaFailure.Violation(
        subject=_SUBJECT + error.tenant_id, quota_metric=error.field, description=message
    )
    failure: Message = error_details_pb2.QuotaFailure(violations=[violation])
    return failure


def _pushback(error: HragError, retry_s: float | None) -> list[tuple[str, str]]:
    """Returns the trailer that overrides the retry delay of a client's gRPC retry policy.

    Returns an empty list if the retry delay of the policy should apply.
    """
    if isinstance(error, _NO_GRPC_RETRY):
        return [(_PUSHBACK, "-1")]
    if isinstance(error, errors.RateQuotaExceeded) and retry_s is not None:
        return [(_PUSHBACK, str(math.ceil(retry_s * 1e3)))]
    return []


def error_from(failure: Any) -> HragError:
    """Returns the error that a failed gRPC call represents.

    The error has the class that the server raised. If the status has no details, the status code
    determines the class.
    """
    try:
        status = rpc_status.from_call(failure)
    # `from_call` raises ValueError if the status code differs from the code in the details, because
    # a proxy has changed the status code.
    except ValueError:
        status = None
    if status is None:
        return _error_of_code(failure.code(), failure.details() or "")
    info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    quota, retry = error_details_pb2.QuotaFailure(), error_details_pb2.RetryInfo()
    for detail in status.details:
        for kind in (info, bad_request, quota, retry):
            detail.Unpack(kind)
    invalid = [violation.field for violation in bad_request.field_violations]
    invalid += [violation.quota_metric for violation in quota.violations]
    error = from_reason(info.reason, status.code, status.message, invalid[0] if invalid else "")
    if retry.HasField("retry_delay"):
        error.retry_s = retry.retry_delay.ToNanoseconds() / 1e9
    if isinstance(error, QuotaExceeded) and quota.violations:
        error.tenant_id = quota.violations[0].subject.removeprefix(_SUBJECT)
    return error


def from_reason(reason: str, code: int, message: str, field: str) -> HragError:
    """Returns an error of the class that `reason` names, with `message` and `field`.

    `code` is the integer of a gRPC status code. It determines the class if the reason is unknown;
    then the error has no field.
    """
    cls = _CLASS_OF_REASON.get(reason)
    if cls is not None:
        return cls(message, field=field)
    return _error_of_code(_CODE_OF_NUMBER.get(code, _CODE.UNKNOWN), message)


def _pack(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _error_of_code(code: grpc.StatusCode, message: str) -> HragError:
    if code is _CODE.RESOURCE_EXHAUSTED and _LARGER_THAN_MAX in message:
        return errors.TooLarge(message)
    return _CLASS_OF_CODE.get(code, errors.InternalError)(message)
