"""Who is calling? Identities, and how credentials are verified.

A credential is an API key or a token. Verifying it returns an Identity or raises
Unauthenticated, always with the same message, so that an error reveals nothing about existing
keys or tenants. `hrag.server.calls.guard` decides which calls an identity may make.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hrag.values.ids import is_name

ANY_TENANT = "*"
REFUSAL = "the call needs a valid credential: metadata `authorization: Bearer <key or token>`"


class Role(StrEnum):
    """A role includes the permissions of the roles before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, needed: "Role") -> bool:
        """True if this role has the permissions of `needed`."""
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Identity:
    """The result of verification; `credential` is its id for logs, not a secret."""

    credential: str
    tenants: frozenset[str]
    role: Role

    def may_act_for(self, tenant_id: str) -> bool:
        """True if the identity has access to the tenant."""
        return tenant_id in self.tenants or ANY_TENANT in self.tenants


Authenticate = Callable[[str], Identity]
"""Verifies a credential; raises Unauthenticated. Thread-safe."""


def is_tenant_pattern(value: str) -> bool:
    """True for the id of a tenant, and for `*`, which stands for all tenants."""
    return value == ANY_TENANT or is_name(value)
