"""Which call is allowed with which credential, for which tenants, and how often.

RULES is the one list of methods. A method that is not in it is refused to everybody, and so
is a call whose tenants cannot be told; a call of several tenants is allowed only if all of
them are. Every message of a stream is checked, and the credential with it, so a key that is
revoked ends the streams it has opened too. Calls count for their tenants once all that is
checked, so nobody uses up what another may do; each search of a batch counts as a call, each
document of a stream too.
"""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc

from hrag.auth import REFUSAL, Authenticate, Identity, Role
from hrag.errors import PermissionDenied, RateQuotaExceeded, Unauthenticated
from hrag.ids import is_name, shown
from hrag.rpc.rate_limiter import Rates
from hrag.types import check_batch

_HEADER = "authorization"
_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class Rule:
    """What a method needs: a role, and which tenants each of its requests is about."""

    role: Role
    tenants: Callable[[Any], Sequence[str]]


def _of_request(request: Any) -> Sequence[str]:
    return (request.tenant_id,)


def _of_search(request: Any) -> Sequence[str]:
    return (request.search.tenant_id,)


def _of_searches(request: Any) -> Sequence[str]:
    if request.searches:  # Before anything is made of each: they may be millions.
        check_batch(len(request.searches))
    return [search.tenant_id for search in request.searches]


def _of_nobody(_request: Any) -> Sequence[str]:
    return ()


_INDEXER = "/hrag.v1.IndexerService/"
_RETRIEVER = "/hrag.v1.RetrieverService/"

RULES = {
    _INDEXER + "CreateCollection": Rule(Role.WRITE, _of_request),
    _INDEXER + "GetCollection": Rule(Role.READ, _of_request),
    _INDEXER + "ListCollections": Rule(Role.READ, _of_request),
    _INDEXER + "DeleteCollection": Rule(Role.ADMIN, _of_request),
    _INDEXER + "IngestDocument": Rule(Role.WRITE, _of_request),
    _INDEXER + "IngestDocuments": Rule(Role.WRITE, _of_request),
    _INDEXER + "DeleteDocument": Rule(Role.WRITE, _of_request),
    _INDEXER + "GetDocument": Rule(Role.READ, _of_request),
    _INDEXER + "ListDocuments": Rule(Role.READ, _of_request),
    _INDEXER + "GetIndexStatus": Rule(Role.READ, _of_request),
    _RETRIEVER + "Search": Rule(Role.READ, _of_request),
    _RETRIEVER + "BatchSearch": Rule(Role.READ, _of_searches),
    _RETRIEVER + "Answer": Rule(Role.READ, _of_search),
    _RETRIEVER + "GetChunk": Rule(Role.READ, _of_request),
    _RETRIEVER + "GetHierarchy": Rule(Role.READ, _of_request),
    _RETRIEVER + "GetServerInfo": Rule(Role.READ, _of_nobody),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Rule(Role.READ, _of_nobody),
}
# What watches a service knows no key, and learns only whether the service is up.
OPEN = frozenset(f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch"))


_ROLE: ContextVar[Role] = ContextVar("role", default=Role.READ)


def caller_is_admin() -> bool:
    """True if the call that this thread handles has the role admin.

    Without authentication, every caller has it.
    """
    return _ROLE.get().includes(Role.ADMIN)


class Call:
    """One call as the guard sees it; `credential` and `tenants` are for its log line."""

    __slots__ = ("_authenticate", "_context", "_rates", "_rule", "credential", "method", "tenants")

    def __init__(
        self,
        method: str,
        authenticate: Authenticate | None,
        rates: Rates,
        context: grpc.ServicerContext,
    ) -> None:
        self.method = method
        self.credential = ""
        self.tenants: Sequence[str] = ()
        self._rule = RULES.get(method)
        self._authenticate = authenticate
        self._rates = rates
        self._context = context

    def admit(self) -> Identity | None:
        """Who calls, None where nobody is asked; before anything of a request is looked at.

        Raises Unauthenticated, or PermissionDenied if the role is not enough.
        """
        rule = self._needed()
        if self._authenticate is None:
            _ROLE.set(Role.ADMIN)
            return None
        identity = self._authenticate(_bearer(self._context.invocation_metadata()))
        self.credential = identity.credential
        if not identity.role.includes(rule.role):
            raise PermissionDenied(
                f"{self.method} needs the role {rule.role}; this credential has {identity.role}"
            )
        _ROLE.set(identity.role)
        return identity

    def welcome(self) -> None:
        """Tells a client that it was admitted, before it has sent anything."""
        self._context.send_initial_metadata(())

    def check(self, identity: Identity | None, request: Any) -> None:
        """Raises PermissionDenied unless who was admitted may act for all tenants named."""
        self.tenants = self._needed().tenants(request)
        if identity is None:
            return
        for tenant_id in self.tenants:
            if not identity.may_act_for(tenant_id):
                raise PermissionDenied(f"this credential may not act for tenant {shown(tenant_id)}")

    def count(self) -> RateQuotaExceeded | None:
        """Counts what was checked for its tenants; if one may not have it now, says so."""
        return self._rates.take(self.tenants)

    def described(self) -> dict[str, str]:
        """For the log: the credential's id and the tenants, those with a possible name."""
        found = {"tenant": ",".join(sorted({name for name in self.tenants if is_name(name)}))}
        if self.credential:
            found["credential"] = self.credential
        return found

    def _needed(self) -> Rule:
        if self._rule is None:
            raise PermissionDenied(f"{self.method} is a call that nobody may make")
        return self._rule


def _bearer(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The one credential that a call brings."""
    found = [value for key, value in metadata if key == _HEADER]
    if len(found) != 1:
        raise Unauthenticated(REFUSAL)
    value = found[0]
    if not isinstance(value, str) or not value.isascii():
        raise Unauthenticated(REFUSAL)
    if value[: len(_SCHEME)].lower() != _SCHEME:
        raise Unauthenticated(REFUSAL)
    return value[len(_SCHEME) :].strip()
