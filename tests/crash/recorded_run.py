"""Runs real services and commands on a recorded disk, and marks in the record what they answered.

The record then says, for each moment, what clients had asked for and what had been acknowledged. A
mark is JSON: an action and its arguments. Marks about documents and collections are applied to a
ledger, during the run and again for each moment that a test examines.
"""

import fcntl
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from hrag.cli.processes import INDEXER
from hrag.client import Client
from hrag.server.auth import api_keys
from hrag.types import DEFAULT_COLLECTION
from hrag.values.filters import DOCUMENT_ID, Match
from tests.crash.documents import VARIABLES, document_of
from tests.crash.ledger import CREATED, Collection, Entry, Write
from tests.crash.recorded_disk import Event, Kind
from tests.support.servers.forked import HRAG
from tests.support.servers.processes import Process, fresh

LARGE = "large"
OTHER = "other"
_IDS = {LARGE: 60, OTHER: 12}
TENANTS = (LARGE, OTHER)
ANSWERS = ("acknowledge", "revised", "backup done", "restore done", "key created", "key revoked")
"""The actions of the marks that say what a client or an operator got as an answer."""
_ROOT = Path(__file__).parents[2]
_SOURCE = Path(__file__).with_name("disk_recorder.cpp")
# This module removes replaced segments soon. These tests do not make it kill itself.
_INDEXER = replace(INDEXER, module="tests.crash.indexer_at_point")
# The probabilities that a stored document is deleted, that a deletion is by a filter, and that only
# the metadata of a stored document is changed.
_DELETED, _BY_FILTER, _REVISED = 0.25, 0.3, 0.2
_MAX_DELETED = 3
_MAX_STREAMED = 12
_SCRATCH_DOCUMENTS = 8
# One client writes a stream, and one a whole collection, each only in one of so many steps.
_STREAM_EVERY, _COLLECTION_EVERY = 4, 16

Ledger = dict[str, dict[str, Collection]]
"""The ledgers of all collections, by tenant and name."""


@dataclass
class Moment:
    """What clients know at a moment: the ledger, and the marks about files and commands."""

    ledger: Ledger = field(default_factory=lambda: {LARGE: {}, OTHER: {}})
    marks: list[dict[str, Any]] = field(default_factory=list)

    def apply(self, mark: dict[str, Any]) -> None:
        """Applies a mark. Marks without a tenant are kept as they are."""
        if "tenant" not in mark:
            self.marks.append(mark)
            return
        tenant, name = mark["tenant"], mark["collection"]
        collection = self.ledger[tenant].setdefault(name, Collection(tenant, name))
        entry = collection.existence
        if mark["document"]:
            entry = collection.documents.setdefault(mark["document"], Entry())
        number, stores = mark["number"], mark["stores"]
        if mark["action"] == "send":
            entry.send(stores=stores)
        elif mark["action"] == "acknowledge":
            entry.acknowledge(Write(number, stores))
        elif mark["action"] == "revise":
            entry.revising = number
        else:
            entry.revision, entry.revising = number, 0

    @property
    def acknowledged(self) -> int:
        """The count of collections and documents with an acknowledged write."""
        return sum(
            (collection.existence.certain.number > 0)
            + sum(entry.certain.number > 0 for entry in collection.documents.values())
            for collections in self.ledger.values()
            for collection in collections.values()
        )

    def has(self, action: str) -> bool:
        """Returns True if there was a mark with this action."""
        return any(mark["action"] == action for mark in self.marks)

    def without_revisions(self) -> Ledger:
        """Returns a copy of the ledger that does not know changes of metadata."""
        ledger = deepcopy(self.ledger)
        for collections in ledger.values():
            for collection in collections.values():
                for entry in collection.documents.values():
                    entry.revision = entry.revising = 0
        return ledger


class RecordedDisk:
    """A folder whose changes are recorded, and the programs that change it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self.root.mkdir()
        self.inode = self.root.stat().st_ino
        self.record = folder / "record"
        self.record.touch()
        self.store = self.root / "store"
        self.now = Moment()
        self._library = folder / "recorder.so"
        self._lock = Lock()
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(self._library)]
        subprocess.run([*command, str(_SOURCE), "-ldl", "-lpthread"], check=True)

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables with which a program is recorded."""
        return {
            "LD_PRELOAD": str(self._library),
            "DISK_RECORD_ROOT": str(self.root),
            "DISK_RECORD_FILE": str(self.record),
            "PYTHONPATH": str(_ROOT),
        }

    def mark(self, action: str, **arguments: Any) -> None:
        """Appends a mark to the record and applies it."""
        mark = {"action": action, **arguments}
        with self._lock:
            with self.record.open("ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(Event(Kind.MARK, data=json.dumps(mark).encode()).to_bytes())
            self.now.apply(mark)

    @contextmanager
    def writing(self, client: Client, steps: int, seed: int) -> Iterator[None]:
        """Writes during the `with` block, and then until all steps are made; see `write_for`."""
        with ThreadPoolExecutor(1) as thread:
            task = thread.submit(write_for, self, client, steps, seed)
            yield
            task.result()

    def run(self, *arguments: str) -> str:
        """Runs a program to its end, recorded; returns its output. Fails unless it succeeds."""
        environment = {**os.environ, **self.environment}
        ran = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    @contextmanager
    def indexer(self) -> Iterator[Client]:
        """Runs a recorded indexer on the store; yields a client of it."""
        settings = {**VARIABLES, "CRASH_POINT": "", "CRASH_AT": "0", "CRASH_ARMED": "/dev/null"}
        process = Process(_INDEXER, self.store, settings, start=self._start)
        try:
            process.wait_until_serving()
            with Client(process.address) as client:
                yield client
            assert process.stop() == 0, process.log
            assert "internal_error" not in process.log, process.log
        finally:
            process.kill()

    def _start(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        return fresh(arguments, {**environment, **self.environment}, log)


class _Client:
    """A client that marks each write before it is sent and after it is acknowledged."""

    def __init__(self, disk: RecordedDisk, client: Client, tenant_id: str, name: str) -> None:
        self.disk = disk
        self.client = client
        self.tenant_id = tenant_id
        self.name = name

    def entry(self, document_id: str = "") -> Entry:
        collection = self.disk.now.ledger[self.tenant_id].get(self.name)
        if collection is None:
            return Entry()
        if not document_id:
            return collection.existence
        return collection.documents.get(document_id, Entry())

    def mark(self, action: str, document_id: str, number: int, *, stores: bool = True) -> None:
        self.disk.mark(
            action,
            tenant=self.tenant_id,
            collection=self.name,
            document=document_id,
            number=number,
            stores=stores,
        )

    @contextmanager
    def write(self, document_id: str, *, stores: bool) -> Iterator[int]:
        """Marks a write before and after the `with` block; yields its number."""
        number = self.entry(document_id).last + 1
        self.mark("send", document_id, number, stores=stores)
        yield number
        self.mark("acknowledge", document_id, number, stores=stores)

    def create(self) -> None:
        with self.write("", stores=True) as number:
            assert number == CREATED
            self.client.create_collection(self.tenant_id, self.name)

    def delete_collection(self) -> None:
        with self.write("", stores=False):
            self.client.delete_collection(self.tenant_id, self.name)

    def put(self, document_id: str) -> None:
        with self.write(document_id, stores=True) as number:
            document = document_of(self.tenant_id, document_id, number)
            self.client.ingest(self.tenant_id, document, collection=self.name)

    def delete(self, document_id: str) -> None:
        with self.write(document_id, stores=False):
            self.client.delete_document(self.tenant_id, document_id, collection=self.name)

    def delete_several(self, document_ids: list[str]) -> None:
        numbers = {name: self.entry(name).last + 1 for name in document_ids}
        for name, number in numbers.items():
            self.mark("send", name, number, stores=False)
        chosen = Match(DOCUMENT_ID, tuple(document_ids))
        deleted = self.client.delete_documents(self.tenant_id, chosen, collection=self.name)
        assert deleted.documents == len(document_ids)
        for name, number in numbers.items():
            self.mark("acknowledge", name, number, stores=False)

    def revise(self, document_id: str) -> None:
        """Changes only the metadata of a document."""
        number = self.entry(document_id).revision + 1
        self.mark("revise", document_id, number)
        metadata = {"revision": number}
        self.client.update_metadata(self.tenant_id, document_id, metadata, collection=self.name)
        self.mark("revised", document_id, number)

    def stream(self, document_ids: list[str]) -> None:
        numbers = {name: self.entry(name).last + 1 for name in document_ids}
        for name, number in numbers.items():
            self.mark("send", name, number)
        documents = [document_of(self.tenant_id, *item) for item in numbers.items()]
        results = self.client.ingest_many(self.tenant_id, documents, collection=self.name)
        for (name, number), result in zip(numbers.items(), results, strict=True):
            assert getattr(result, "document_id", None) == name, result
            self.mark("acknowledge", name, number)


def _write_one_by_one(client: _Client, ids: list[str], source: random.Random) -> None:
    stored = [name for name in ids if client.entry(name).certain.stores]
    draw = source.random()
    if stored and draw < _DELETED * _BY_FILTER:
        client.delete_several(source.sample(stored, min(_MAX_DELETED, len(stored))))
    elif stored and draw < _DELETED:
        client.delete(source.choice(stored))
    elif stored and draw < _DELETED + _REVISED:
        client.revise(source.choice(stored))
    else:
        client.put(source.choice(ids))


def _write_stream(client: _Client, ids: list[str], source: random.Random) -> None:
    client.stream(source.sample(ids, source.randint(1, min(_MAX_STREAMED, len(ids)))))


def _write_collection(disk: RecordedDisk, client: Client, name: str) -> None:
    scratch = _Client(disk, client, LARGE, name)
    scratch.create()
    for number in range(_SCRATCH_DOCUMENTS):
        scratch.put(f"d{number}")
    scratch.delete_collection()


def write_for(disk: RecordedDisk, client: Client, steps: int, seed: int) -> None:
    """Writes with several clients at once until each has made `steps` steps."""
    large, other = (_Client(disk, client, tenant, DEFAULT_COLLECTION) for tenant in _IDS)
    names = [f"d{number:03}" for number in range(_IDS[LARGE])]
    others = [f"d{number:03}" for number in range(_IDS[OTHER])]

    def repeat(act: Callable[[random.Random, int], None], worker: int) -> None:
        source = random.Random(f"{seed} {worker}")
        for step in range(steps):
            act(source, step)

    workers: list[Callable[[random.Random, int], None]] = [
        lambda source, _: _write_one_by_one(large, names[0::2], source),
        lambda source, step: (
            _write_stream(large, names[1::2], source) if step % _STREAM_EVERY == 0 else None
        ),
        lambda source, _: _write_one_by_one(other, others, source),
        lambda _, step: (
            _write_collection(disk, client, f"scratch-{seed}-{step}")
            if step % _COLLECTION_EVERY == 0
            else None
        ),
    ]
    with ThreadPoolExecutor(len(workers)) as threads:
        tasks = [threads.submit(repeat, act, worker) for worker, act in enumerate(workers)]
        for task in tasks:
            task.result()


def create_collections(disk: RecordedDisk, client: Client) -> None:
    for tenant in _IDS:
        _Client(disk, client, tenant, DEFAULT_COLLECTION).create()


def back_up(disk: RecordedDisk, target: Path) -> None:
    disk.mark("backup began", path=str(target))
    disk.run(*HRAG, "backup", str(target), "--data-dir", str(disk.store))
    disk.mark("backup done", path=str(target))


def restore(disk: RecordedDisk, source: Path, target: Path) -> None:
    disk.mark("restore began", path=str(target), source=str(source))
    disk.run(*HRAG, "restore", str(source), "--data-dir", str(target))
    disk.mark("restore done", path=str(target), source=str(source))


def vacuum(disk: RecordedDisk) -> None:
    disk.run(*HRAG, "vacuum", "--data-dir", str(disk.store))


def create_key(disk: RecordedDisk, keys: Path) -> str:
    """Creates a key; returns its id."""
    key = disk.run(*HRAG, "keys", "create", "--tenant", LARGE, "--file", str(keys)).strip()
    key_id = api_keys.id_of(key)
    disk.mark("key created", id=key_id)
    return key_id


def revoke_key(disk: RecordedDisk, keys: Path, key_id: str) -> None:
    disk.run(*HRAG, "keys", "revoke", key_id, "--file", str(keys))
    disk.mark("key revoked", id=key_id)


def mark_in(event: Event) -> dict[str, Any]:
    """Returns the mark that the event contains."""
    return dict(json.loads(event.data))
