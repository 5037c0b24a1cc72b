"""Who is calling? Verifies credentials and returns identities.

A credential is an API key or a token. The verification of a credential returns an Identity or
raises Unauthenticated, always with the same message, so that an error reveals nothing about
existing keys or tenants. `hrag.server.calls.guard` decides which calls an identity may make.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hrag.values.ids import is_name

ANY_TENANT = "*"
REFUSAL = "the call needs a valid credential: metadata `authorization: Bearer <key or token>`"


class Role(StrEnum):
    """The roles of callers. A role includes the permissions of the roles listed before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, needed: "Role") -> bool:
        """Returns True if this role has the permissions of `needed`."""
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a caller, which the verification of a credential returns.

    `credential` is the id of the credential. The id is not secret and appears in logs. `tenants`
    are the tenants for which the caller may act; ANY_TENANT stands for all tenants.
    """

    credential: str
    tenants: frozenset[str]
    role: Role

    def may_act_for(self, tenant_id: str) -> bool:
        """Returns True if the caller may act for the tenant."""
        return tenant_id in self.tenants or ANY_TENANT in self.tenants


Authenticate = Callable[[str], Identity]
"""Verifies a credential and returns its identity; raises Unauthenticated. Thread-safe."""


def is_tenant_pattern(value: str) -> bool:
    """Returns True if `value` is a valid tenant id, or `*`, which stands for all tenants."""
    return value == ANY_TENANT or is_name(value)
