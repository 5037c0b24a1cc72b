"""Authentication, authorization and rate limits of every call.

RULES lists every method once. A method that is missing in it is denied to everybody. A call
that names several tenants is allowed only if all of them are. Every message of a stream is
checked together with its credential, so revoking a key also ends the streams it opened.
Calls count against the rate limits of their tenants only after these checks, so no caller
can use up another tenant's limit. Each search of a batch and each document of a stream
counts as one call.
"""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from hrag.auth import REFUSAL, Authenticate, Identity, Role
from hrag.errors import PermissionDenied, RateQuotaExceeded, Unauthenticated
from hrag.ids import is_name, quoted
from hrag.rpc.rate_limiter import RateLimiter
from hrag.types import check_batch

Metadata = Iterable[tuple[str, str | bytes]]
"""Keys and values that came with a call's headers."""

_HEADER = "authorization"
_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class Rule:
    """The role that a method needs, and the function that lists a request's tenants."""

    role: Role
    tenants: Callable[[Any], Sequence[str]]


def _request_tenant(request: Any) -> Sequence[str]:
    return (request.tenant_id,)


def _search_tenant(request: Any) -> Sequence[str]:
    return (request.search.tenant_id,)


def _batch_tenants(request: Any) -> Sequence[str]:
    if request.searches:  # Checked first: a request may hold millions.
        check_batch(len(request.searches))
    return [search.tenant_id for search in request.searches]


def _no_tenant(_request: Any) -> Sequence[str]:
    return ()


_INDEXER = "/hrag.v1.IndexerService/"
_RETRIEVER = "/hrag.v1.RetrieverService/"

RULES = {
    _INDEXER + "CreateCollection": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "GetCollection": Rule(Role.READ, _request_tenant),
    _INDEXER + "ListCollections": Rule(Role.READ, _request_tenant),
    _INDEXER + "DeleteCollection": Rule(Role.ADMIN, _request_tenant),
    _INDEXER + "IngestDocument": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "IngestDocuments": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "DeleteDocument": Rule(Role.WRITE, _request_tenant),
    _INDEXER + "GetDocument": Rule(Role.READ, _request_tenant),
    _INDEXER + "ListDocuments": Rule(Role.READ, _request_tenant),
    _INDEXER + "GetIndexStatus": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "Search": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "BatchSearch": Rule(Role.READ, _batch_tenants),
    _RETRIEVER + "Answer": Rule(Role.READ, _search_tenant),
    _RETRIEVER + "GetChunk": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "GetHierarchy": Rule(Role.READ, _request_tenant),
    _RETRIEVER + "GetServerInfo": Rule(Role.READ, _no_tenant),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Rule(Role.READ, _no_tenant),
}
# Health probes have no credential, and learn only whether the service is up.
OPEN = frozenset(f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch"))


_ROLE: ContextVar[Role] = ContextVar("role", default=Role.READ)


def caller_is_admin() -> bool:
    """True if the call that this thread handles has the role admin.

    Without authentication, every caller has it.
    """
    return _ROLE.get().includes(Role.ADMIN)


class CallGuard:
    """The checks of one call, which one thread at a time makes.

    Order: `authorize` before a request is read, `check_tenants`, then `try_acquire`.
    """

    __slots__ = (
        "_authenticate",
        "_credential",
        "_metadata",
        "_method",
        "_rate_limiter",
        "_rule",
        "_tenants",
    )

    def __init__(
        self,
        method: str,
        authenticate: Authenticate | None,
        rate_limiter: RateLimiter,
        metadata: Metadata,
    ) -> None:
        """`authenticate` is None where no credential is needed; `metadata` is the caller's."""
        self._method = method
        self._credential = ""
        self._tenants: Sequence[str] = ()
        self._rule = RULES.get(method)
        self._authenticate = authenticate
        self._rate_limiter = rate_limiter
        self._metadata = metadata

    @property
    def account(self) -> str:
        """Whose limits the call counts against: its first tenant, else its credential."""
        return self._tenants[0] if self._tenants else self._credential

    def authorize(self) -> Identity | None:
        """Returns the caller's identity, None where no credential is needed.

        Reads metadata only, nothing of a request. Raises Unauthenticated, or PermissionDenied
        if the role does not suffice.
        """
        rule = self._required_rule()
        if self._authenticate is None:
            _ROLE.set(Role.ADMIN)
            return None
        identity = self._authenticate(_bearer(self._metadata))
        self._credential = identity.credential
        if not identity.role.includes(rule.role):
            raise PermissionDenied(
                f"{self._method} needs the role {rule.role}; this credential has {identity.role}"
            )
        _ROLE.set(identity.role)
        return identity

    def check_tenants(self, identity: Identity | None, request: Any) -> None:
        """Raises PermissionDenied unless `identity` may act for all tenants of the request."""
        self._tenants = self._required_rule().tenants(request)
        if identity is None:
            return
        for tenant_id in self._tenants:
            if not identity.may_act_for(tenant_id):
                raise PermissionDenied(
                    f"this credential may not act for tenant {quoted(tenant_id)}"
                )

    def try_acquire(self) -> RateQuotaExceeded | None:
        """Counts the checked request against its tenants' rate limits.

        Returns None, or the error to raise if a tenant exceeded its limit.
        """
        return self._rate_limiter.try_acquire(self._tenants)

    def log_fields(self) -> dict[str, str]:
        """Returns the tenants with valid names, comma-separated, and the credential's id."""
        fields = {"tenant": ",".join(sorted({name for name in self._tenants if is_name(name)}))}
        if self._credential:
            fields["credential"] = self._credential
        return fields

    def _required_rule(self) -> Rule:
        if self._rule is None:
            raise PermissionDenied(f"{self._method} is not a method that anybody may call")
        return self._rule


def _bearer(metadata: Metadata) -> str:
    """Returns the credential of the metadata, which must hold exactly one."""
    found = [value for key, value in metadata if key == _HEADER]
    if len(found) != 1:
        raise Unauthenticated(REFUSAL)
    value = found[0]
    if not isinstance(value, str) or not value.isascii():
        raise Unauthenticated(REFUSAL)
    if value[: len(_SCHEME)].lower() != _SCHEME:
        raise Unauthenticated(REFUSAL)
    return value[len(_SCHEME) :].strip()
