"""Waiting for background work, and what a collection's index may then look like."""

import math
import time
from pathlib import Path

from hrag.client import Client
from hrag.types import DEFAULT_COLLECTION, IndexStatus
from tests.endurance.processes import wait_until_idle
from tests.processes import Running

_BLOCK_BYTES = 512  # The unit of st_blocks, whatever the file system's own is.
_POLL_S = 0.05


def most_segments(leaves: int, seal_leaves: int) -> float:
    """How many segments a collection of so many leaves may have at rest."""
    return math.log(max(leaves / seal_leaves, 1), 8) + 2


def lmdb_bytes(data_dir: Path) -> int:
    """Disk that the documents and their trees take, segments aside."""
    return (data_dir / "data.mdb").stat().st_blocks * _BLOCK_BYTES


def wait_until_sealed(
    client: Client,
    tenant_id: str,
    seal_leaves: int,
    timeout_s: float,
    collection: str = DEFAULT_COLLECTION,
) -> IndexStatus:
    """The status once the tail is shorter than a sealing needs, or fails."""
    until = time.monotonic() + timeout_s
    while True:
        status = client.index_status(tenant_id, collection=collection)
        if status.embedded.tail_leaf_count < seal_leaves:
            return status
        assert time.monotonic() < until, status
        time.sleep(_POLL_S)


def wait_until_settled(
    services: Running, tenant_id: str, seal_leaves: int, timeout_s: float
) -> IndexStatus:
    """The status once everything is sealed and merged, and the retriever has taken it over."""
    wait_until_sealed(services.client, tenant_id, seal_leaves, timeout_s)
    wait_until_idle(services.indexer, timeout_s)
    until = time.monotonic() + timeout_s
    while (reader := services.client.server_info().reader.embedded).applied_sequence < (
        reader.sequence
    ):
        assert time.monotonic() < until, reader
        time.sleep(_POLL_S)
    return services.client.index_status(tenant_id)
