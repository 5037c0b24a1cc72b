"""Who calls: what a credential proves, and how one is checked.

A credential is a text, an API key or a token; checking it gives an Identity or raises
Unauthenticated, always with the same words: nothing tells a stranger which keys or tenants
there are. What an identity may do with which call is decided in `hrag.rpc.guard`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

ANY_TENANT = "*"
REFUSAL = "the call needs a valid credential: metadata `authorization: Bearer <key or token>`"


class Role(StrEnum):
    """What a credential may do; each role may do what those before it may."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, needed: "Role") -> bool:
        """Whether this role is enough where `needed` is."""
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Identity:
    """What a credential proves; `credential` names it in logs and is no secret."""

    credential: str
    tenants: frozenset[str]
    role: Role

    def may_act_for(self, tenant_id: str) -> bool:
        return tenant_id in self.tenants or ANY_TENANT in self.tenants


Authenticate = Callable[[str], Identity]
