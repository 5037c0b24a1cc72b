"""Writes calls to the audit log: decides which calls are recorded, and with which fields.

A handler that changes something calls `record_change` as soon as the change is stored, whether or
not the reply reaches the caller. `ServerCall.finish` calls `record_end` for every call.
`record_end` records

- every refusal,
- every failed call of a method that changes data and needs the role admin,
- every call of a method that changes nothing and needs the role admin,
- with HRAG_AUDIT_READS, every call of a method that changes nothing.
"""

from typing import Any

import grpc

from hrag.observe import audit
from hrag.server.auth import Role
from hrag.server.calls import guard
from hrag.values.errors import HragError
from hrag.values.ids import is_document_id, is_name, parse_chunk_id
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.wire import status_codes

_CODE = grpc.StatusCode
_OK = _CODE.OK.name
# The status codes of refusals. A call ends with RESOURCE_EXHAUSTED if it exceeds a limit, for
# example the limit of concurrent calls, of calls per second, of storage or of unread replies.
_REFUSALS = frozenset(
    code.name for code in (_CODE.UNAUTHENTICATED, _CODE.PERMISSION_DENIED, _CODE.RESOURCE_EXHAUSTED)
)
_CHANGES = frozenset(
    {
        "CreateCollection",
        "DeleteCollection",
        "ReembedCollection",
        "IngestDocument",
        "IngestDocuments",
        "DeleteDocument",
        "DeleteDocuments",
        "UpdateMetadata",
        "SetAlias",
        "DeleteAlias",
    }
)


def record_change(
    method: str,
    context: grpc.ServicerContext,
    tenant_id: str,
    collection: str = "",
    document_id: str = "",
    *,
    outcome: str,
    sequence: int,
    **also: object,
) -> None:
    """Records a stored change in the audit log.

    `outcome` is `CREATED`, `UPDATED` or `DELETED`. `also` contains further fields of the audit
    record; which fields these are depends on the method.
    """
    audit.record(
        audit.Kind.CHANGE,
        method=method,
        code=_OK,
        outcome=outcome,
        tenant=tenant_id,
        collection=collection,
        document=document_id,
        sequence=sequence,
        peer=context.peer(),
        **also,
    )


def document_refused(
    context: grpc.ServicerContext, tenant_id: str, collection: str, document_id: str, error: Any
) -> None:
    """Records in the audit log that one document of a stream was refused.

    Does nothing if `error` is not a refusal. A refusal is an HragError with one of the status codes
    in `_REFUSALS`.
    """
    if not isinstance(error, HragError):
        return
    situation = status_codes.situation_of(error)
    if situation.code.name in _REFUSALS:
        audit.refused(
            situation.reason,
            "IngestDocuments",
            code=situation.code.name,
            tenant=tenant_id if is_name(tenant_id) else "",
            **_valid_names(collection, document_id),
            peer=context.peer(),
        )


def record_end(
    method: str, code: str, reason: str, request: Any, context: grpc.ServicerContext
) -> None:
    """Records the end of a call in the audit log, if it is a kind of call that is recorded.

    Refusals are recorded, and calls of methods that need the role admin, except for stored changes,
    which the handler has recorded. With HRAG_AUDIT_READS, calls of other methods that change
    nothing are recorded too.

    Must be called in the thread of the call. `method` is the full name of the method, `code` the
    name of the status code, and `reason` the error's reason, empty without an error. `request` is
    the parsed request, or the last request of a stream. It is None if no request was read.
    """
    name = method.rpartition("/")[2]
    if code in _REFUSALS:
        audit.refused(reason, name, code=code, peer=context.peer(), **_resource(request))
        return
    if name in _CHANGES and code == _OK:
        return
    if method in guard.RULES and guard.RULES[method].role is Role.ADMIN:
        kind = audit.Kind.ADMINISTRATION
    elif name not in _CHANGES and audit.records_reads():
        kind = audit.Kind.READ
    else:
        return
    resource = _resource(request)
    audit.record(kind, method=name, code=code, reason=reason, peer=context.peer(), **resource)


def _resource(request: Any) -> dict[str, str]:
    """Returns the audit fields `collection` and `document` of a request.

    `collection` is the name of the collection or of the alias.
    """
    request = getattr(request, "search", request)  # An AnswerRequest contains a SearchRequest.
    collection = getattr(request, "collection", None)
    if collection is None:
        return _valid_names(getattr(request, "name", getattr(request, "alias", "")), "")
    document_id = getattr(request, "document_id", "")
    if hasattr(request, "document"):
        document_id = request.document.document_id
    elif hasattr(request, "chunk_id"):
        document_id = _document_of(request.chunk_id)
    return _valid_names(collection or DEFAULT_COLLECTION, document_id)


def _document_of(chunk_id: str) -> str:
    try:
        return parse_chunk_id(chunk_id).document_id
    except HragError:
        return ""


def _valid_names(collection: str, document_id: str) -> dict[str, str]:
    """Returns the audit fields `collection` and `document`. An invalid name is replaced by "".

    An invalid name is not recorded, because it may be as long as a request and contain anything.
    """
    return {
        "collection": collection if is_name(collection) else "",
        "document": document_id if is_document_id(document_id) else "",
    }
