"""The situations in which hrag refuses or fails, one class each.

An error says what is wrong, which value, and what is allowed. It knows nothing of gRPC:
`hrag.rpc.status` maps classes to status codes, for the server and the client alike.
`field` names the request field or setting that is wrong, where there is one; of a quota,
which of them. `retry_s` is when trying again helps, where that is known for this one error.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class HragError(Exception):
    """Any refusal or failure that hrag explains."""

    def __init__(self, message: str, *, field: str = "", retry_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_s = retry_s


class InvalidArgument(HragError):
    """A field is missing, malformed or past its limit."""


class UnreadableDocument(InvalidArgument):
    """A document's bytes cannot be read as the type they claim."""


class BlankDocument(InvalidArgument):
    """A document holds no text."""


class TooLarge(InvalidArgument):
    """A value is past its named limit."""


class Unauthenticated(HragError):
    """The call brings no credential, or one that is not valid."""


class PermissionDenied(HragError):
    """The credential is valid, but not for this call or this tenant."""


class CollectionNotFound(HragError):
    """The tenant has no such collection."""


class DocumentNotFound(HragError):
    """The collection has no such document."""


class ChunkNotFound(HragError):
    """The document has no such chunk."""


class CollectionExists(HragError):
    """The tenant has a collection of that name already."""


class NoSummaries(HragError):
    """The collection was made without summaries."""


class EmbedderMismatch(HragError):
    """The service's embedder is not the one the collection was made with."""


class EmbedderUnavailable(HragError):
    """The embedding endpoint is down, slow or limiting; trying again may help."""


class EmbedderRejected(HragError):
    """The embedding endpoint refuses, or its answer is wrong; trying again will not help."""


class ChatNotConfigured(HragError):
    """The service has no chat model."""


class ChatUnavailable(HragError):
    """The chat endpoint is down, slow, limiting or broke off; trying again may help."""


class ChatRejected(HragError):
    """The chat endpoint refuses, or its answer is wrong; trying again will not help."""


class SequenceNotReached(HragError):
    """The store has not come as far as the search demands."""


class DeadlineExceeded(HragError):
    """The caller's deadline passed."""


class Cancelled(HragError):
    """The caller went away, so nobody waits for what was being done."""


class StorageFull(HragError):
    """The disk is full; nothing of the write was kept."""


class StoreUnavailable(HragError):
    """The store cannot be opened: missing, locked, of another version, or damaged."""


class StoreMissing(StoreUnavailable):
    """There is no store yet; the indexer creates it when it starts."""


class NotSupported(HragError):
    """The engine in use leaves this to its database's own means, which the message names."""


class TooBusy(HragError):
    """Too many calls are in flight."""


class QuotaExceeded(HragError):
    """The tenant has used up what it may; `field` says of what: calls, bytes, ..."""

    def __init__(
        self, message: str, *, field: str = "", retry_s: float | None = None, tenant_id: str = ""
    ) -> None:
        super().__init__(message, field=field, retry_s=retry_s)
        self.tenant_id = tenant_id


class RateQuotaExceeded(QuotaExceeded):
    """The tenant has made all the calls it may make for now; after `retry_s` it may again."""


class StorageQuotaExceeded(QuotaExceeded):
    """The tenant has stored all it may; trying again does not help, deleting does."""


class ServiceUnavailable(HragError):
    """The service cannot be reached, or is starting or stopping."""


class InternalError(HragError):
    """A fault of hrag itself; the message holds an id that the service's log repeats."""


def outcome_of(
    call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result | HragError:
    """What a call returns, or what it refuses with: one of several must not fail the others."""
    try:
        return call(*args, **kwargs)
    except HragError as error:
        return error
