"""Waits for background work, and computes how many segments a collection may have after it."""

import math
from contextlib import closing
from pathlib import Path

from hrag.client import Client
from hrag.engine.embedded.store.environment import open_for_reading
from hrag.types import DEFAULT_COLLECTION, IndexStatus
from tests.endurance.processes import wait_until_idle
from tests.support.servers.processes import Running
from tests.support.until import until


def max_segments(leaves: int, segment_min_leaves: int) -> float:
    """Returns how many segments a collection of `leaves` leaves may have when no merge is due."""
    return math.log(max(leaves / segment_min_leaves, 1), 8) + 2


def lmdb_bytes(data_dir: Path) -> int:
    """Returns the bytes of LMDB's pages in use, without segments and the reserve for deletions."""
    with closing(open_for_reading(data_dir)) as store:
        return store.used_bytes


def wait_until_sealed(
    client: Client,
    tenant_id: str,
    segment_min_leaves: int,
    timeout_s: float,
    collection: str = DEFAULT_COLLECTION,
) -> IndexStatus:
    """Waits until the tail is too short for a new segment; then returns the status.

    Fails after `timeout_s`.
    """
    statuses: list[IndexStatus] = []

    def is_sealed() -> bool:
        statuses[:] = [client.index_status(tenant_id, collection=collection)]
        return statuses[0].embedded.tail_leaf_count < segment_min_leaves

    until(is_sealed, timeout_s)
    return statuses[0]


def wait_until_settled(
    services: Running, tenant_id: str, segment_min_leaves: int, timeout_s: float
) -> IndexStatus:
    """Waits until nothing is left to seal or merge and the retriever has loaded all segments.

    Then returns the status. Each of the three waits fails after `timeout_s`.
    """
    wait_until_sealed(services.client, tenant_id, segment_min_leaves, timeout_s)
    wait_until_idle(services.indexer, timeout_s)
    until(lambda: _has_applied_all(services), timeout_s)
    return services.client.index_status(tenant_id)


def _has_applied_all(services: Running) -> bool:
    reader = services.client.server_info().reader.embedded
    return reader.applied_sequence >= reader.sequence
