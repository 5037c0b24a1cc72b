"""The quota and the usage of a tenant.

Each process of a service applies the rate limit separately. A storage quota applies to the whole
store. This module does not know where quotas are configured or how usage is counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one tenant. In all fields except `burst`, None means unlimited.

    `burst` is the number of calls that a tenant may make at once after it has made no calls for a
    while. If `burst` is None, this number is `calls_per_s`, rounded up.
    """

    calls_per_s: float | None = None
    burst: int | None = None
    max_bytes: int | None = None
    max_documents: int | None = None
    max_collections: int | None = None

    @property
    def call_interval_ns(self) -> int:
        """The time between two calls at the maximum rate, in nanoseconds; 0 without a limit."""
        return 0 if self.calls_per_s is None else round(_NS / self.calls_per_s)

    @property
    def burst_calls(self) -> int:
        """The number of calls that a tenant may make at once after it made no calls for a while.

        The number is 0 if calls are unlimited.
        """
        if self.calls_per_s is None:
            return 0
        return self.burst or math.ceil(self.calls_per_s)


QuotaOf = Callable[[str], Quota]
"""A function that returns the quota of a tenant, given its id. Thread-safe."""

NO_LIMITS = Quota()


def unlimited(_tenant_id: str) -> Quota:
    """Returns a quota without limits, for any tenant."""
    return NO_LIMITS


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """The usage of a tenant in all its collections, and its quota.

    `stored_bytes` is the size of everything that is stored for the tenant's documents except the
    vector index: texts, vectors, chunk trees, titles, sources, metadata with its filter index, and
    summaries. `documents` does not count summaries.
    """

    collections: int = 0
    documents: int = 0
    stored_bytes: int = 0
    quota: Quota = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant that has a collection, as an administrator sees it.

    `leaf_count` is the number of leaves in all its collections; it does not count summaries.
    `sequence` is the sequence number of the tenant's last change.
    """

    tenant_id: str
    usage: TenantUsage
    leaf_count: int
    sequence: int
