"""What bounds a tenant, and how much it takes up.

Calls are bounded for each process of a service, what is stored for the whole store. None
is no bound. Knows nothing of where bounds come from, nor of how anything is counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Quota:
    """The bounds of one tenant. Without `burst`, as many calls at once as in a second."""

    calls_per_s: float | None = None
    burst: int | None = None
    max_bytes: int | None = None
    max_documents: int | None = None
    max_collections: int | None = None

    @property
    def call_interval_ns(self) -> int:
        """After which time there may be one call more; 0 where nothing bounds calls."""
        return 0 if self.calls_per_s is None else round(_NS / self.calls_per_s)

    @property
    def calls_at_once(self) -> int:
        """How many calls may follow a pause; 0 where nothing bounds calls."""
        if self.calls_per_s is None:
            return 0
        return self.burst or math.ceil(self.calls_per_s)


QuotaOf = Callable[[str], Quota]
"""The bounds of the tenant of this name."""

_NONE = Quota()


def unlimited(_tenant_id: str) -> Quota:
    """No bounds, for whomever."""
    return _NONE


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """How much a tenant takes up in all its collections, and what bounds it.

    `stored_bytes` is all that is kept of its documents but the vector index: texts,
    vectors, chunk trees, titles, sources, metadata with what filters find them by, and
    summaries, which are not among `documents`.
    """

    collections: int = 0
    documents: int = 0
    stored_bytes: int = 0
    quota: Quota = _NONE
