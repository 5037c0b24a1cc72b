"""A power loss at any moment loses no acknowledged write, and leaves no half one.

A real indexer, backups, a restore, a vacuum and changes of keys run on a recorded disk. For many
moments, the test builds a disk as it may be after a power loss at that moment, with any part of
what was not synced (`recorded_disk.py`), and opens the store on it.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from hrag.engine.embedded.admin import backup
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import location
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.server.auth import api_keys
from hrag.types import DEFAULT_COLLECTION
from hrag.values.errors import HragError
from tests.crash.documents import VARIABLES
from tests.crash.harness import MIN_RECALL_OF_FEW
from tests.crash.recorded_disk import Disk, Event, Kind, Loss, events_of
from tests.crash.recorded_run import (
    ANSWERS,
    TENANTS,
    Ledger,
    Moment,
    RecordedDisk,
    back_up,
    create_collections,
    create_key,
    mark_in,
    restore,
    revoke_key,
    vacuum,
    write_for,
)
from tests.crash.stored_documents import StoredDocuments
from tests.crash.verify import ExactSearch, settle
from tests.support.servers.processes import running

_SEED = 20_260_301
_STEPS = 12
# A check of a backup or of a restored store takes much longer than one of the store.
_COPIES = 0.25
_EVENTS_AFTER_RENAME = 6
_KEYS = "keys.json"
_BACKUP = Path("backups/of this year/first")
_RESTORED = Path("restored/deeper/store")


def _record(disk: RecordedDisk, steps: int, seed: int) -> None:
    """Runs everything that hrag does to a disk."""
    keys = disk.root / _KEYS
    with disk.indexer() as client:
        create_collections(disk, client)
        first = create_key(disk, keys)
        write_for(disk, client, steps, seed)
        with disk.writing(client, steps, seed + 1):
            back_up(disk, disk.root / _BACKUP)
    vacuum(disk)
    revoke_key(disk, keys, first)
    with disk.indexer() as client:
        write_for(disk, client, steps // 4, seed + 2)
    restore(disk, disk.root / _BACKUP, disk.root / _RESTORED)


class _Examination:
    """Examines disks after a power loss, at ascending moments of one record."""

    def __init__(self, disk: RecordedDisk, folder: Path, source: random.Random) -> None:
        self.events = list(events_of(disk.record))
        self.counts: Counter[str] = Counter()
        self._disk = Disk(disk.inode)
        self._moment = Moment()
        self._backed_up = Moment()
        self._applied = 0
        self._folder = folder
        self._source = source

    def advance(self, events: int) -> None:
        """Applies the first `events` events of the record."""
        for event in self.events[self._applied : events]:
            self._disk.apply(event)
            if event.kind is Kind.MARK:
                self._apply(mark_in(event))
        self._applied = max(self._applied, events)

    def _apply(self, mark: dict[str, Any]) -> None:
        self._moment.apply(mark)
        if mark["action"] == "backup began":
            self._backed_up = deepcopy(self._moment)
        elif mark["action"] == "send" and not self._moment.has("backup done"):
            # The backup may contain this write or not.
            self._backed_up.apply(mark)

    @contextmanager
    def _lost_power(self, kept: int | None) -> Iterator[Path]:
        root = self._folder / "after"
        self._disk.lose_power(root, Loss(self._source, kept))
        try:
            yield root
        finally:
            shutil.rmtree(root)

    def examine(self, kept: int | None, *, copies: bool) -> None:
        """Fails unless the store, the keys and, with `copies`, its copies are right."""
        self.counts["moments"] += 1
        with self._lost_power(kept) as root:
            self._examine_store(root / "store", self._moment.ledger)
            self._examine_keys(root / _KEYS)
            if copies:
                self._examine_backup(root)
                self._examine_restored(root)

    def examine_with_services(self, kept: int | None) -> None:
        """Starts both services on the store. Fails unless they have every acknowledged write."""
        self.counts["moments with services"] += 1
        ledger = deepcopy(self._moment.ledger)
        with self._lost_power(kept) as root, running(root / "store", VARIABLES) as services:
            for tenant_id in TENANTS:
                assert settle(services.client, tenant_id, ledger[tenant_id]) == []
                collection = ledger[tenant_id].get(DEFAULT_COLLECTION)
                if collection is None:
                    continue
                exact = ExactSearch(tenant_id, collection.versions())
                recalls = exact.compare(services.client, self._source)
                assert sum(recalls) / len(recalls) >= MIN_RECALL_OF_FEW

    def _examine_store(self, directory: Path, ledger: Ledger, *, revisions: bool = True) -> None:
        ledger = deepcopy(ledger)
        try:
            store = open_for_writing(directory)
        except HragError as error:
            # Only a new store, from which nobody has got an answer yet, may be refused.
            if self._moment.acknowledged or "restore a backup" not in error.message:
                raise
            self.counts["new stores that are refused"] += 1
            return
        with closing(store):
            assert check(store).problems == ()
            stored = StoredDocuments(EmbeddedWriter(store), revisions=revisions)
            for tenant_id in TENANTS:
                assert settle(stored, tenant_id, ledger[tenant_id]) == []

    def _examine_backup(self, root: Path) -> None:
        """A backup with its final name is complete; an unfinished one can be repeated."""
        if not self._moment.has("backup began"):
            return
        if not (root / _BACKUP).exists():
            assert not self._moment.has("backup done")
            self.counts["unfinished backups"] += 1
            with closing(open_for_writing(root / "store")) as store:
                backup.backup(store, root / _BACKUP, str)
            return
        backup.restore(root / _BACKUP, root / "from backup", str)
        self._examine_copy(root / "from backup")

    def _examine_restored(self, root: Path) -> None:
        """A restored store is complete as soon as it is a store."""
        if not self._moment.has("restore began"):
            return
        if not location.has_data(root / _RESTORED):
            assert not self._moment.has("restore done")
            self.counts["unfinished restores"] += 1
            backup.restore(root / _BACKUP, root / _RESTORED, str)
        self._examine_copy(root / _RESTORED)

    def _examine_copy(self, directory: Path) -> None:
        self._examine_store(directory, self._backed_up.without_revisions(), revisions=False)

    def _examine_keys(self, path: Path) -> None:
        keys = {key.id: key for key in api_keys.read(path)} if path.exists() else {}
        for mark in self._moment.marks:
            if mark["action"] == "key created":
                assert mark["id"] in keys
            elif mark["action"] == "key revoked":
                assert keys[mark["id"]].revoked is not None


def _answers(events: list[Event]) -> list[int]:
    """Returns how many events there are up to each acknowledgement."""
    return [
        position
        for position, event in enumerate(events, 1)
        if event.kind is Kind.MARK and mark_in(event)["action"] in ANSWERS
    ]


@contextmanager
def _recorded(folder: Path, steps: int, seed: int) -> Iterator[RecordedDisk]:
    if shutil.which("g++") is None:
        pytest.skip("g++ is needed to record a disk")
    disk = RecordedDisk(folder)
    _record(disk, steps, seed)
    yield disk
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedDisk]:
    """A disk with the record of a whole run."""
    with _recorded(tmp_path_factory.mktemp("recorded"), _STEPS, _SEED) as disk:
        yield disk


def _after_renames(events: list[Event]) -> list[int]:
    """Returns how many events there are up to each of the few after a rename.

    Renames of segments are left out: there are many of them.
    """
    renames = [
        position
        for position, event in enumerate(events, 1)
        if event.kind is Kind.RENAME and not event.name.endswith(segment_files.UNFINISHED)
    ]
    return [position + later for position in renames for later in range(_EVENTS_AFTER_RENAME)]


def _examine(disk: RecordedDisk, folder: Path, seed: int, few: int, services: int) -> Counter[str]:
    """Examines seeded moments of the record: `few` of each kind, and `services` with services.

    Directly after an answer, everything that was not synced is lost, which finds a missing sync.
    """
    source = random.Random(seed)
    examination = _Examination(disk, folder, source)
    answers, events = _answers(examination.events), range(len(examination.events) + 1)
    moments: list[tuple[int, Callable[[], None]]] = []

    def add(positions: Sequence[int], count: int, act: Callable[[], None]) -> None:
        drawn = source.sample(positions, min(count, len(positions)))
        moments.extend((position, act) for position in drawn)

    add(answers, few, lambda: examination.examine(0, copies=source.random() < _COPIES))
    add(events, few, lambda: examination.examine(None, copies=source.random() < _COPIES))
    add(_after_renames(examination.events), few, lambda: examination.examine(None, copies=True))
    add(answers, services, lambda: examination.examine_with_services(None))
    for position, act in sorted(moments, key=lambda moment: moment[0]):
        examination.advance(position)
        act()
    return examination.counts


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_record_is_complete(disk: RecordedDisk, tmp_path: Path) -> None:
    """Without a power loss, the disk that is built from the record is the real one.

    The only file that a map changes is LMDB's table of readers, which nobody reads after a restart.
    """
    model = Disk(disk.inode)
    for event in events_of(disk.record):
        model.apply(event)
    model.lose_power(tmp_path / "built", Loss(random.Random(0), 1))
    built, real = _files(tmp_path / "built"), _files(disk.root)
    assert built.keys() == real.keys()
    differing = {path for path, content in built.items() if content != real[path]}
    assert {path.name for path in differing} <= {location.LOCK}


def _files(root: Path) -> dict[Path, bytes | None]:
    """Returns the content of each file, and None for each folder, except the programs' logs."""
    return {
        path.relative_to(root): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if path.suffix != ".log"
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_power_loss_loses_no_acknowledged_write(disk: RecordedDisk, tmp_path: Path) -> None:
    _examine(disk, tmp_path, _SEED, few=36, services=2)


@pytest.mark.endurance
@pytest.mark.timeout(3600)
def test_a_thousand_power_losses_lose_no_acknowledged_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    with _recorded(tmp_path / "recorded", 4 * _STEPS, seed) as disk, capsys.disabled():
        print(f"\nseed {seed}")  # noqa: T201 - a run reports its figures
        print(_examine(disk, tmp_path, seed, few=350, services=20))  # noqa: T201
