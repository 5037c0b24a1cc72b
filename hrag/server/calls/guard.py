"""Authentication, authorization and rate limits of every call.

RULES lists every method once. A method that is not in RULES is denied to everybody. A call that
names several tenants is allowed only if the caller may act for all of these tenants. The credential
is verified again for every message of a stream, so revoking a key also ends the streams that were
opened with the key. Calls count against the rate limits of their tenants only after these checks,
so no caller can use up another tenant's limit. Each search of a batch and each document of a stream
counts as one call.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hrag.server.auth import ANY_TENANT, REFUSAL, Authenticate, Identity, Role
from hrag.server.calls.rate_limiter import RateLimiter
from hrag.values.errors import PermissionDenied, RateQuotaExceeded, Unauthenticated
from hrag.values.ids import MAX_NAME_BYTES, is_name, quoted
from hrag.values.limits import check_batch

Metadata = Iterable[tuple[str, str | bytes]]
"""The keys and values in the headers of a call."""

# The protobuf tag of field 1 consists of the field number 1 and the wire type 2 (a value with a
# length).
_FIELD_1 = 1 << 3 | 2
# In protobuf, the length before a value has at most five bytes, each with 7 bits of the length. So
# the bits of the fifth byte are shifted by 28.
_MAX_VARINT_SHIFT = 28
PAGE_IMAGE_CALLS = 4
"""An image of a page counts as so many calls against the rate limit of its tenant."""
_HEADER = "authorization"
_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class Rule:
    """The role that a method needs, and the function that returns the tenants of a request.

    `depth` says where an encoded request stores its first tenant:

    - 0: requests name no tenant.
    - 1: field 1 of the request is the tenant.
    - 2: field 1 of the request is a message whose field 1 is the tenant.

    If `is_store_wide` is True, the response is about all tenants, so the credential must be one for
    all tenants.
    """

    role: Role
    tenants: Callable[[Any], Sequence[str]]
    depth: int = 1
    is_store_wide: bool = False


def _request_tenant(request: Any) -> Sequence[str]:
    return (request.tenant_id,)


def _page_tenant(request: Any) -> Sequence[str]:
    # Rendering a page takes as much processor time as several other calls.
    return (request.tenant_id,) * PAGE_IMAGE_CALLS


def _search_tenant(request: Any) -> Sequence[str]:
    return (request.search.tenant_id,)


def _batch_tenants(request: Any) -> Sequence[str]:
    if request.searches:  # The count of searches is checked first, because it may be millions.
        check_batch(len(request.searches))
    return [search.tenant_id for search in request.searches]


def _no_tenant(_request: Any) -> Sequence[str]:
    return ()


_INDEXER = "/hrag.v1.IndexerService/"
_RETRIEVER = "/hrag.v1.RetrieverService/"
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/"

RULES = {
    _INDEXER + "ListTenants": Rule(Role.ADMIN, _no_tenant, depth=0, is_store_wide=True),
    _INDEXER + "CreateCollection": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "GetCollection": Rule(Role.READ, _request_tenant),
    _INDEXER + "ListCollections": Rule(Role.READ, _request_tenant),
    _INDEXER + "DeleteCollection": Rule(Role.ADMIN, _request_tenant),
    _INDEXER + "ReembedCollection": Rule(Role.ADMIN, _request_tenant),
    _INDEXER + "SetAlias": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "DeleteAlias": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "ListAliases": Rule(Role.READ, _request_tenant),
    _INDEXER + "IngestDocument": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "IngestDocuments": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "UpdateMetadata": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "DeleteDocument": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "DeleteDocuments": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "GetDocument": Rule(Role.READ, _request_tenant),
    _INDEXER + "GetPageImage": Rule(Role.READ, _page_tenant),
    _INDEXER + "ListDocuments": Rule(Role.READ, _request_tenant),
    _INDEXER + "CountDocuments": Rule(Role.READ, _request_tenant),
    _INDEXER + "GetIndexStatus": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "Search": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "BatchSearch": Rule(Role.READ, _batch_tenants, depth=2),
    _RETRIEVER + "Answer": Rule(Role.READ, _search_tenant, depth=2),
    _RETRIEVER + "GetChunk": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "GetHierarchy": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "GetOriginal": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "GetDocument": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "GetServerInfo": Rule(Role.READ, _no_tenant, depth=0),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Rule(
        Role.READ, _no_tenant, depth=0
    ),
}
# The methods that anybody may call, because health probes have no credential. The responses say
# only whether the service is up.
OPEN = frozenset(f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch"))


class CallGuard:
    """The checks of one call. Only one thread at a time may use a CallGuard.

    The methods are called in this order: `authorize` before a request is read, `account_of` before
    the request is parsed, `check_tenants`, and last `try_acquire`. Once `authorize` has succeeded,
    `role` is the role of the caller. Without authentication, every caller has the role admin.
    """

    __slots__ = (
        "_authenticate",
        "_credential",
        "_identity",
        "_metadata",
        "_method",
        "_rate_limiter",
        "_rule",
        "_tenants",
        "role",
    )

    def __init__(
        self,
        method: str,
        authenticate: Authenticate | None,
        rate_limiter: RateLimiter,
        metadata: Metadata,
    ) -> None:
        """`authenticate` is None if no credential is needed; `metadata` has the call's headers."""
        self.role = Role.READ
        self._method = method
        self._credential = ""
        self._identity: Identity | None = None
        self._tenants: Sequence[str] = ()
        self._rule = RULES.get(method)
        self._authenticate = authenticate
        self._rate_limiter = rate_limiter
        self._metadata = metadata

    @property
    def account(self) -> str:
        """The account against whose limits the call counts: a tenant id or a credential id.

        - Once the tenants of the request are known: the first tenant of the request.
        - Before that, for a credential that may act for all tenants: the id of the credential.
        - Before that, for any other credential: the first tenant, in alphabetical order, for which
          the credential may act. So several credentials of a tenant share one account.
        """
        if self._tenants:
            return self._tenants[0]
        allowed = self._identity.tenants if self._identity else frozenset()
        return self._credential if ANY_TENANT in allowed else min(allowed, default=self._credential)

    def authorize(self) -> Identity | None:
        """Returns the identity of the caller; None if no credential is needed.

        Reads only the metadata, no request. Raises Unauthenticated if the credential is missing or
        invalid, and PermissionDenied if the credential's role does not permit the method, or if the
        method is about all tenants and the credential is not.
        """
        rule = self._rule or self._no_rule()
        if self._authenticate is None:
            self.role = Role.ADMIN
            return None
        identity = self._authenticate(_bearer_credential(self._metadata))
        self._credential, self._identity = identity.credential, identity
        if not identity.role.includes(rule.role):
            raise PermissionDenied(
                f"{self._method} needs the role {rule.role}; this credential has {identity.role}"
            )
        if rule.is_store_wide and ANY_TENANT not in identity.tenants:
            raise PermissionDenied(
                f"{self._method} is about all tenants; it needs a credential for the tenant "
                f"{ANY_TENANT}, which means all of them"
            )
        self.role = identity.role
        return identity

    def known_account(self) -> str:
        """Returns the account of a caller with a valid credential; "" for any other caller.

        This is for the methods that need no credential.
        """
        if self._authenticate is None:
            return ""
        try:
            identity = self._authenticate(_bearer_credential(self._metadata))
        except Unauthenticated:
            return ""
        self._credential, self._identity = identity.credential, identity
        return self.account

    def check_tenants(self, identity: Identity | None, request: Any) -> None:
        """Raises PermissionDenied if `identity` may not act for one of the request's tenants."""
        rule = self._rule or self._no_rule()
        self._tenants = rule.tenants(request)
        if identity is not None:
            for tenant_id in self._tenants:
                _check_tenant(identity, tenant_id)

    def account_of(self, message: bytes) -> str:
        """Returns the account against whose limits a request counts, without parsing the request.

        `message` is the encoded request. The account is the first tenant of the request. If the
        message does not begin with a tenant, the value of the property `account` is returned,
        which depends on the credential. So a caller cannot choose another account by changing the
        order of the fields. Raises PermissionDenied if the caller may not act for the tenant.
        """
        rule = self._rule or self._no_rule()
        tenant_id = _first_text(message, rule.depth)
        if not is_name(tenant_id):
            return self.account
        self._tenants = (tenant_id,)
        if self._identity is not None:
            _check_tenant(self._identity, tenant_id)
        return tenant_id

    def try_acquire(self) -> RateQuotaExceeded | None:
        """Counts the checked request against the rate limits of its tenants.

        Returns None if the request is within the rate limits, else the error to raise.
        """
        return self._rate_limiter.try_acquire(self._tenants)

    def log_fields(self) -> dict[str, str]:
        """Returns the log fields `tenant` and `credential`.

        `tenant` has the valid tenant ids of the request, comma-separated. `credential` is the id of
        the credential; without a credential, the field is missing.
        """
        fields = {"tenant": ",".join(sorted({name for name in self._tenants if is_name(name)}))}
        if self._credential:
            fields["credential"] = self._credential
        return fields

    def _no_rule(self) -> NoReturn:
        raise PermissionDenied(f"no caller may call the method {self._method}")


def _check_tenant(identity: Identity, tenant_id: str) -> None:
    if not identity.may_act_for(tenant_id):
        raise PermissionDenied(f"this credential may not act for tenant {quoted(tenant_id)}")


def _first_text(message: bytes, depth: int) -> str:
    """Returns the text in field 1 of an encoded message, without parsing the whole message.

    With a `depth` of 2, field 1 must be a message, and the text in field 1 of this inner message is
    returned. Returns "" if field 1 is not the first field of the message (encoders normally write
    field 1 first), or if the text has more than MAX_NAME_BYTES bytes.
    """
    start, end = 0, len(message)
    for _ in range(depth):
        if start >= end or message[start] != _FIELD_1:
            return ""
        length = shift = 0
        while True:
            start += 1
            if start >= end or shift > _MAX_VARINT_SHIFT:
                return ""
            length |= (message[start] & 0x7F) << shift
            shift += 7
            if message[start] < 0x80:
                break
        start += 1
        end = min(end, start + length)
    if not depth or end - start > MAX_NAME_BYTES:
        return ""
    return message[start:end].decode("utf-8", "replace")


def _bearer_credential(metadata: Metadata) -> str:
    """Returns the credential in the `authorization` header of a call.

    Raises Unauthenticated if there is no such header, if there are several such headers, or if the
    header does not begin with `Bearer`.
    """
    values = [value for key, value in metadata if key == _HEADER]
    if len(values) != 1:
        raise Unauthenticated(REFUSAL)
    value = values[0]
    if not isinstance(value, str) or not value.isascii():
        raise Unauthenticated(REFUSAL)
    if value[: len(_SCHEME)].lower() != _SCHEME:
        raise Unauthenticated(REFUSAL)
    return value[len(_SCHEME) :].strip()
