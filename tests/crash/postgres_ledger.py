"""A ledger of the writes to PostgreSQL in a file that survives the writing process.

A line is appended before each write is sent and after each acknowledgement. The kernel has the
line when the process is killed. The lines together restore the ledger of `tests.crash.ledger`.
"""

import json
from collections import defaultdict
from pathlib import Path

from tests.crash.ledger import Entry, Write

Place = tuple[str, str]
"""A tenant and a document id."""


class FileLedger:
    """The ledger of all documents; only one process at a time appends to it."""

    def __init__(self, path: Path) -> None:
        self.entries: dict[Place, Entry] = defaultdict(Entry)
        self.acknowledged = 0
        self._path = path
        if path.exists():
            for line in path.read_text().splitlines():
                self._apply(*json.loads(line))

    def send(self, place: Place, *, stores: bool) -> Write:
        write = self.entries[place].send(stores=stores)
        self._append("send", place, int(stores))
        return write

    def acknowledge(self, place: Place, write: Write) -> None:
        self.entries[place].acknowledge(write)
        self.acknowledged += 1
        self._append("acknowledge", place, write.number)

    def settle(self, place: Place, stored: int | None) -> bool:
        """Settles the entry of a document, see `Entry.settle`, and records that."""
        allowed = self.entries[place].settle(stored)
        self._append("settle", place, stored)
        return allowed

    def _append(self, event: str, place: Place, value: int | None) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps([event, *place, value]).encode() + b"\n")

    def _apply(self, event: str, tenant_id: str, name: str, value: int | None) -> None:
        entry = self.entries[tenant_id, name]
        if event == "send":
            entry.send(stores=bool(value))
        elif event == "acknowledge":
            entry.acknowledge(next(write for write in entry.sent if write.number == value))
            self.acknowledged += 1
        else:
            entry.settle(value)
