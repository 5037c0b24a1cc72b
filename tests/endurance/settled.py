"""Waits for background work, and says what a collection's index may look like after it."""

import math
import time
from contextlib import closing
from pathlib import Path

from hrag.client import Client
from hrag.engine.embedded.store.environment import open_for_reading
from hrag.types import DEFAULT_COLLECTION, IndexStatus
from tests.endurance.processes import wait_until_idle
from tests.support.servers.processes import Running

_POLL_S = 0.05


def max_segments(leaves: int, segment_min_leaves: int) -> float:
    """Returns the most segments that a collection of `leaves` leaves may have at rest."""
    return math.log(max(leaves / segment_min_leaves, 1), 8) + 2


def lmdb_bytes(data_dir: Path) -> int:
    """Returns the bytes of LMDB's pages, without segments and the reserve for deletions."""
    with closing(open_for_reading(data_dir)) as store:
        return store.used_bytes


def wait_until_sealed(
    client: Client,
    tenant_id: str,
    segment_min_leaves: int,
    timeout_s: float,
    collection: str = DEFAULT_COLLECTION,
) -> IndexStatus:
    """Returns the status once the tail is too short for a new segment; fails after `timeout_s`."""
    until = time.monotonic() + timeout_s
    while True:
        status = client.index_status(tenant_id, collection=collection)
        if status.embedded.tail_leaf_count < segment_min_leaves:
            return status
        assert time.monotonic() < until, status
        time.sleep(_POLL_S)


def wait_until_settled(
    services: Running, tenant_id: str, segment_min_leaves: int, timeout_s: float
) -> IndexStatus:
    """Returns the status once all is sealed, merged and loaded by the retriever."""
    wait_until_sealed(services.client, tenant_id, segment_min_leaves, timeout_s)
    wait_until_idle(services.indexer, timeout_s)
    until = time.monotonic() + timeout_s
    while (reader := services.client.server_info().reader.embedded).applied_sequence < (
        reader.sequence
    ):
        assert time.monotonic() < until, reader
        time.sleep(_POLL_S)
    return services.client.index_status(tenant_id)
