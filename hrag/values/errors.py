"""The errors of hrag, one class for each situation.

A message names the wrong value and what is allowed. Errors know nothing of gRPC:
`hrag.wire.status_codes` maps the classes to status codes, for both server and client.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class HragError(Exception):
    """The base class of all errors of hrag.

    `field` is the request field or setting that is wrong, or the quota that is exceeded; it is
    empty if there is none. `retry_s` is the delay in seconds after which a retry may succeed; it is
    None if the delay is not known. `detail` is for operators only, because it may name users and
    addresses of servers: logs and commands show it after `message`, clients do not get it. `limit`
    is the name of the limit that the contents of a document exceed, for metrics; mostly empty.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        retry_s: float | None = None,
        detail: str = "",
        limit: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_s = retry_s
        self.detail = detail
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.message}: {self.detail}" if self.detail else self.message


class InvalidArgument(HragError):
    """A field is missing, malformed or exceeds its limit."""


class UnreadableDocument(InvalidArgument):
    """The bytes of a document are not valid for its MIME type."""


class BlankDocument(InvalidArgument):
    """A document contains no visible text."""


class TooLarge(InvalidArgument):
    """A value exceeds its limit."""


class Unauthenticated(HragError):
    """The call has no credential, or an invalid one."""


class PermissionDenied(HragError):
    """The credential is valid, but not for this method or this tenant."""


class CollectionNotFound(HragError):
    """The tenant has no collection with this name."""


class DocumentNotFound(HragError):
    """The collection has no document with this id."""


class DocumentChanged(HragError):
    """The stored document is no longer the version that the caller's change expects.

    Also raised if the document was replaced several times while its text was read. Read the
    document again, then retry.
    """


class ChunkNotFound(HragError):
    """The document has no chunk with this id."""


class OriginalNotFound(HragError):
    """The document exists, but the file from which it was read is not stored."""


class CollectionExists(HragError):
    """The tenant already has a collection or an alias of this name."""


class CollectionHasAliases(HragError):
    """The collection cannot be deleted while aliases name it."""


class AliasNotFound(HragError):
    """The tenant has no alias with this name."""


class NoSummaries(HragError):
    """The collection was created without summaries."""


class CopyInProgress(HragError):
    """The collection is being embedded again, and the call would disturb this.

    The call would write to the copy, or would begin a second copy.
    """


class NoVectors(HragError):
    """The collection was created without an embedder, so it has no vectors."""


class NoLexicalIndex(HragError):
    """The collection was created before lexical indexes existed, so it has no lexical index."""


class EmbedderMismatch(HragError):
    """The collection was created with another embedder than the one that the service uses."""


class EmbedderUnavailable(HragError):
    """The embedding endpoint is down, is slow or limits the rate of requests. Retryable."""


class EmbedderRejected(HragError):
    """The embedding endpoint refuses the request, or its reply is invalid. Not retryable.

    `every_text` is True if the endpoint would refuse every other text too, for example because the
    API key is invalid.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        retry_s: float | None = None,
        every_text: bool = False,
    ) -> None:
        super().__init__(message, field=field, retry_s=retry_s)
        self.every_text = every_text


class ChatNotConfigured(HragError):
    """The service is configured without a chat model."""


class ChatUnavailable(HragError):
    """The chat endpoint is down, is slow, limits the rate of requests, or truncated a reply.

    Retryable.
    """


class ChatRejected(HragError):
    """The chat endpoint refuses the request, or its reply is invalid. Not retryable."""


class RerankerNotConfigured(HragError):
    """The search requires a reranker, but the service is configured without a reranker."""


class RerankerUnavailable(HragError):
    """The reranking endpoint is down, is slow or limits the rate of requests. Retryable."""


class RerankerRejected(HragError):
    """The reranking endpoint refuses the request, or its reply is invalid. Not retryable."""


class SequenceNotReached(HragError):
    """The store does not yet contain the change whose sequence number the search requires."""


class DeadlineExceeded(HragError):
    """The caller's deadline passed."""


class Cancelled(HragError):
    """The caller cancelled the call or disconnected."""


class StorageFull(HragError):
    """The disk is full; nothing of the write was stored."""


class DataLoss(HragError):
    """Stored data differs from what was written. The message names the document. Not retryable."""


class StoreUnavailable(HragError):
    """The store cannot be opened: it is missing, locked, damaged, or of another version."""


class StoreUnusable(StoreUnavailable):
    """The store or the backup is damaged, incomplete or of another version. Not retryable."""


class FolderRefused(StoreUnavailable):
    """The folder that was named for a store or a backup must not be used. Not retryable."""


class DatabaseRefused(StoreUnavailable):
    """The database refuses hrag's role, password or rights, or lacks an extension.

    A retry does not help until an operator has changed a setting or the database.
    """


class StoreMissing(StoreUnavailable):
    """There is no store yet. The indexer creates it when it starts."""


class NotSupported(HragError):
    """The storage engine does not offer this operation.

    The message says why, or names the tool of the database that does the same.
    """


class TooBusy(HragError):
    """Too many calls are already running and waiting."""


class ReplyTooLarge(HragError):
    """The reply would exceed the service's size limit. Requesting less helps, a retry does not."""


class QuotaExceeded(HragError):
    """The tenant exceeded a quota.

    `field` is `calls`, `bytes`, `documents`, `collections` or `aliases`.
    """

    def __init__(
        self, message: str, *, field: str = "", retry_s: float | None = None, tenant_id: str = ""
    ) -> None:
        super().__init__(message, field=field, retry_s=retry_s)
        self.tenant_id = tenant_id


class RateQuotaExceeded(QuotaExceeded):
    """The tenant has exceeded its rate limit. It may retry after `retry_s`."""


class StorageQuotaExceeded(QuotaExceeded):
    """The tenant has exceeded a storage quota. Deleting data helps, a retry does not."""


class ServiceUnavailable(HragError):
    """The service cannot be reached, or is starting or stopping."""


class InternalError(HragError):
    """A fault of hrag. The message contains a request id, which is also in the service's log."""


def outcome_of(
    call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result | HragError:
    """Returns the result of `call`, or the HragError that it raises.

    This is for batches, where an error of one item must not fail the others.
    """
    try:
        return call(*args, **kwargs)
    except HragError as error:
        return error
