"""While the disk is full, new documents are refused, and everything else works.

No acknowledged write is lost, and documents are accepted as soon as there is space again.
"""

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from hrag import errors
from hrag.client import Client
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.store import failpoints
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.types import DEFAULT_COLLECTION, IndexStatus
from tests.crash.disks import KIB, MIB, Ballast, small_disk
from tests.crash.documents import VARIABLES
from tests.crash.harness import MIN_RECALL_OF_FEW
from tests.crash.ledger import Collection, Entry
from tests.crash.load import StreamWriter, UnaryWriter, Worker
from tests.crash.verify import ExactSearch, check_beside_services, settle
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.support.servers.forked import HRAG, ran
from tests.support.servers.processes import Running, running
from tests.support.servers.stores import check_store
from tests.support.until import until

_TENANT = "large"
# This size is enough for the default reserve, for the space that is allocated for deletions, which
# has the same size, and for a store.
_DISK_BYTES = 192 * MIB
_IDS = 2000
_STOPS_WITHIN_S = 60.0
# The indexer retries a failed build every few seconds.
_SEALS_WITHIN_S = 60.0
_ENOUGH_LEAVES = 3000
# A segment of _ENOUGH_LEAVES leaves takes three times as much.
_TOO_LITTLE_BYTES = 300 * KIB


@dataclass
class Filling:
    """Running services with a store on a small disk, and the ledger of their only client."""

    services: Running
    ballast: Ballast
    collection: Collection

    @property
    def client(self) -> Client:
        return self.services.client

    @property
    def status(self) -> IndexStatus:
        return self.client.index_status(_TENANT)

    def workers(self) -> tuple[UnaryWriter, StreamWriter]:
        """Returns two writers of different kinds, for different documents."""
        ids = sorted(self.collection.documents)
        return (
            UnaryWriter(self.client, self.collection, ids[0::2], random.Random(0)),
            StreamWriter(self.client, self.collection, ids[1::2], random.Random(0)),
        )

    def write(self, leaves: int) -> None:
        """Writes until the collection has at least `leaves` leaves."""
        unary, stream = self.workers()
        while self.status.leaf_count < leaves:
            stream.step()
            unary.step()

    def verify(self) -> None:
        """Fails if an acknowledged write is lost, or if a service does not work."""
        assert self.services.indexer.serves()
        assert self.services.retriever.serves()
        assert settle(self.client, _TENANT, {DEFAULT_COLLECTION: self.collection}) == []
        exact = ExactSearch(_TENANT, self.collection.versions())
        recalls = exact.compare(self.client, random.Random(0))
        assert sum(recalls) / len(recalls) >= MIN_RECALL_OF_FEW
        check_beside_services(self.services.data_dir)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk for a store and for the logs of the services, which also need space."""
    with small_disk(tmp_path / "disk", _DISK_BYTES) as folder:
        yield folder


@contextmanager
def _filling(
    disk: Path, collection: Collection | None = None, **settings: str
) -> Iterator[Filling]:
    with running(disk / "store", {**VARIABLES, **settings}) as services:
        if collection is None:
            collection = _created(services.client)
        yield Filling(services, Ballast(disk), collection)


def _created(client: Client) -> Collection:
    client.create_collection(_TENANT, DEFAULT_COLLECTION)
    collection = Collection(_TENANT, DEFAULT_COLLECTION)
    collection.existence.acknowledge(collection.existence.send(stores=True))
    collection.documents = {f"d{number:04}": Entry() for number in range(_IDS)}
    return collection


def _until_full(worker: Worker) -> None:
    """Writes until a call raises StorageFull; fails if that takes too long."""
    end_s = time.monotonic() + _STOPS_WITHIN_S
    with suppress(errors.StorageFull):
        while True:
            worker.step()
            assert time.monotonic() < end_s, "the disk is not full"


def _fill_during_writes(filling: Filling, leave_bytes: int) -> None:
    workers = filling.workers()
    with ThreadPoolExecutor(len(workers)) as threads:
        tasks = [threads.submit(_until_full, worker) for worker in workers]
        until(lambda: min(worker.done.acknowledged for worker in workers) > 50)
        filling.ballast.fill(leave_bytes)
        for task in tasks:
            task.result(_STOPS_WITHIN_S)


@pytest.mark.parametrize(
    ("reserve", "leave"),
    [
        pytest.param(8 * MIB, 6 * MIB, marks=pytest.mark.slow, id="reserve"),
        pytest.param(0, 0, marks=pytest.mark.slow, id="last byte"),
    ],
)
def test_a_full_disk_stops_ingesting_and_nothing_else(disk: Path, reserve: int, leave: int) -> None:
    with _filling(disk, HRAG_DISK_RESERVE_BYTES=str(reserve)) as filling:
        _fill_during_writes(filling, leave)
        filling.verify()
        filling.ballast.remove()
        filling.write(filling.status.leaf_count + 500)
        filling.verify()
    with _filling(disk, filling.collection) as restarted:
        restarted.verify()


def test_the_reserve_has_space_for_deletions_on_a_full_disk(disk: Path) -> None:
    """If deletions also needed free space, nobody could free space by deleting documents."""
    with _filling(disk, HRAG_DISK_RESERVE_BYTES=str(8 * MIB)) as filling:
        filling.write(1000)
        filling.ballast.fill(6 * MIB)
        _until_full(filling.workers()[0])
        for document_id in filling.collection.versions():
            entry = filling.collection.documents[document_id]
            write = entry.send(stores=False)
            filling.client.delete_document(_TENANT, document_id)
            entry.acknowledge(write)
        filling.verify()
        assert filling.status.document_count == 0


@pytest.mark.slow  # It waits for the next attempt of the indexer.
def test_a_segment_for_which_there_is_no_space_is_built_later(disk: Path) -> None:
    with _filling(disk, HRAG_SEGMENT_MIN_LEAVES=str(1 << 20)) as filling:
        filling.write(_ENOUGH_LEAVES)
        assert filling.status.embedded.segments == ()
    filling.ballast.fill(_TOO_LITTLE_BYTES)
    with _filling(disk, filling.collection, HRAG_DISK_RESERVE_BYTES="0") as filling:
        until(lambda: "maintenance_failed" in filling.services.indexer.log)
        # The indexer may be trying again in this moment.
        until(lambda: not list((filling.services.data_dir / "segments").iterdir()))
        filling.verify()
        filling.ballast.remove()
        until(lambda: filling.status.embedded.tail_leaf_count < 64, _SEALS_WITHIN_S)
        assert len(filling.status.embedded.segments) == 1
        filling.verify()


def test_a_segment_can_be_built_again_after_the_disk_was_full_during_its_build(
    disk: Path,
) -> None:
    """There is enough space when the build begins, but other files use it during the build."""
    ballast, folder = Ballast(disk), disk / "store" / "segments"
    store = open_for_writing(disk / "store")
    with closing(store), _at("seal.built", ballast.fill):
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        collection = writer.open("t", "c")
        for number in range(20):
            writer.put(collection, prepared(f"d{number}", sentences(200), seed=number))
        with pytest.raises(OSError, match=r"No space left|may be full"):
            seal(store, collection.collection_id)
        assert list(folder.iterdir()) == []
        assert check(store).problems == ()
        ballast.remove()
        failpoints.install(None)
        assert seal(store, collection.collection_id) is not None
        assert check(store).problems == ()


@contextmanager
def _at(point: str, act: Callable[[], None]) -> Iterator[None]:
    """Makes this process call `act` each time it reaches the failpoint `point`."""
    failpoints.install(lambda name: act() if name == point else None)
    try:
        yield
    finally:
        failpoints.install(None)


@pytest.mark.slow
def test_a_backup_for_which_there_is_no_space_leaves_no_files(disk: Path, tmp_path: Path) -> None:
    with running(tmp_path / "store", VARIABLES) as services:
        filling = Filling(services, Ballast(disk), _created(services.client))
        filling.write(_ENOUGH_LEAVES)
        filling.ballast.fill(_TOO_LITTLE_BYTES)
        failed = _backup(services.data_dir, disk / "backup")
        assert failed.returncode == 1
        assert "full" in failed.stderr or "No space left" in failed.stderr, failed.stderr
        assert "Traceback" not in failed.stderr
        assert [path.name for path in disk.iterdir()] == ["ballast"]
        filling.verify()
        filling.ballast.remove()
        successful = _backup(services.data_dir, disk / "backup")
        assert successful.returncode == 0, successful.stderr
    check_store(disk / "backup")


def _backup(data_dir: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return ran(*HRAG, "backup", str(target), "--data-dir", str(data_dir))
