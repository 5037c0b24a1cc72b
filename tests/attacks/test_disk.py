"""A full disk, many metadata values or damaged files lose no document and end no service."""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hrag import errors
from hrag.client import Client
from hrag.engine.embedded.store.environment import open_for_reading
from hrag.types import DEFAULT_COLLECTION, Document
from tests.crash.disks import MIB, Ballast, small_disk
from tests.support.documents.fakes import sentences
from tests.support.servers.processes import FAST, running
from tests.support.until import until

pytestmark = pytest.mark.attacks

_TENANT = "acme"
_RESERVE = {"HRAG_DISK_RESERVE_BYTES": str(64 * MIB)}
_DOCUMENTS = 200
# A text for which LMDB's file has too few free pages before documents are deleted.
_MANY_WORDS = 3 * MIB
_MOVED = "was moved, replaced or removed"


# These tests fill the disk.


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 512 * MIB) as folder:
        yield folder


def numbers(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(10**9), k=count)


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        pytest.param(3, FAST, id="ordinary"),
        pytest.param(1000, FAST, id="many values"),
        pytest.param(3, {**FAST, "HRAG_SEGMENT_MIN_LEAVES": "64"}, id="sealed"),
    ],
)
def test_deletes_succeed_on_a_full_disk_and_make_room_for_writes(
    disk: Path, values: int, settings: dict[str, str]
) -> None:
    with running(disk / "store", {**settings, **_RESERVE}) as services:
        client = services.client
        for number in range(_DOCUMENTS):
            metadata = {"n": numbers(values, number)}
            client.ingest(_TENANT, Document(sentences(9, number), f"d{number}", metadata=metadata))
        ballast = Ballast(disk)
        ballast.fill()
        with pytest.raises(errors.StorageFull):
            client.ingest(_TENANT, Document("new " * _MANY_WORDS, "new"))
        for number in range(100):
            client.delete_document(_TENANT, f"d{number}")
        assert client.index_status(_TENANT).document_count == _DOCUMENTS - 100
        client.ingest(_TENANT, Document("new", "new"))  # Deletions have freed pages of the file.
        client.delete_collection(_TENANT, DEFAULT_COLLECTION)
        client.create_collection(_TENANT, "new")
        with pytest.raises(errors.CollectionNotFound):
            client.search(_TENANT, "sentence")
        until(lambda: is_reclaimed(services.data_dir))
        assert "maintenance_failed" not in services.indexer.log
        ballast.remove()
        client.ingest(_TENANT, Document("new", "new"))
        assert client.search(_TENANT, "new").passages


def is_reclaimed(data_dir: Path) -> bool:
    """Returns True if the store has erased all rows of deleted collections."""
    with closing(open_for_reading(data_dir)) as store, store.read() as txn:
        return not txn.deleted_collections.size


# This test compares the bytes that quotas count with the bytes on disk.


def test_stored_bytes_of_many_metadata_values_are_about_their_bytes_on_disk(tmp_path: Path) -> None:
    with running(tmp_path / "store", {**FAST, "HRAG_DISK_RESERVE_BYTES": "0"}) as services:
        client, data = services.client, services.data_dir / "data.mdb"
        client.create_collection(_TENANT, DEFAULT_COLLECTION)
        before = data.stat().st_size
        for number in range(150):
            metadata = {"n": numbers(1000, number)}
            client.ingest(_TENANT, Document("Tiny.", f"d{number}", metadata=metadata))
        grown = data.stat().st_size - before
        counted = client.index_status(_TENANT).tenant.stored_bytes
        assert 0.5 <= counted / grown <= 2, f"{counted:,} bytes counted, grown by {grown:,}"
        with pytest.raises(errors.TooLarge, match="2,000 values; at most 1,024 are allowed"):
            client.ingest(_TENANT, Document("Tiny.", "d", metadata={"n": numbers(2000, 0)}))


# These tests change files while services run.


def test_a_truncated_segment_file_changes_no_result_and_is_rebuilt(tmp_path: Path) -> None:
    settings = {**FAST, "HRAG_EMBEDDER": "hash:384", "HRAG_SEGMENT_MIN_LEAVES": "64"}
    with running(tmp_path / "store", settings) as services:
        client = services.client
        for number in range(100):
            client.ingest(_TENANT, Document(sentences(9, number), f"d{number}"))
        segment = the_only_segment(client)
        before = hits(client)
        for path in (services.data_dir / "segments").rglob("*"):
            if path.is_file():
                os.truncate(path, 0)
        for _ in range(20):
            assert hits(client) == before
        assert services.retriever.is_running
        until(lambda: the_only_segment(client) != segment)
        assert hits(client) == before
        assert services.retriever.serves()


def the_only_segment(client: Client) -> int:
    """Waits until the collection has one segment and a short tail; returns the segment's id."""

    def sealed() -> bool:
        status = client.index_status(_TENANT).embedded
        return len(status.segments) == 1 and status.tail_leaf_count < 64

    until(sealed)
    return client.index_status(_TENANT).embedded.segments[0].segment_id


def hits(client: Client) -> list[tuple[str, float]]:
    return [
        (passage.chunk.chunk_id, round(passage.score, 4))
        for query in range(5)
        for passage in client.search(_TENANT, sentences(2, query)).passages
    ]


def test_a_moved_folder_is_reported_and_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    with running(tmp_path / "store", {**FAST, **_RESERVE}) as services:
        client, elsewhere = services.client, tmp_path / "elsewhere"
        for number in range(20):
            client.ingest(_TENANT, Document(sentences(9, number), f"d{number}"))
        services.data_dir.rename(elsewhere)
        assert_all_writes_are_refused(client)
        assert hits(client)
        until(lambda: not services.indexer.serves() and not services.retriever.serves())
        for process in (services.indexer, services.retriever):
            assert "store_lost" in process.log
            assert _MOVED in process.log
        elsewhere.rename(services.data_dir)
        until(lambda: services.indexer.serves() and services.retriever.serves())
        client.ingest(_TENANT, Document("And more.", "more"))
        assert client.index_status(_TENANT).document_count == 21


def assert_all_writes_are_refused(client: Client) -> None:
    for write in (
        lambda: client.ingest(_TENANT, Document("new", "new")),
        lambda: client.delete_document(_TENANT, "d0"),
        lambda: client.create_collection(_TENANT, "new"),
        lambda: client.delete_collection(_TENANT, DEFAULT_COLLECTION),
    ):
        with pytest.raises(errors.StoreUnavailable, match=_MOVED):
            write()
