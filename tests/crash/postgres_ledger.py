"""What was written to PostgreSQL and acknowledged, in a file that survives the writer.

A line is appended before each write is sent, and after each acknowledgement; the kernel has it
when the process is killed. Reading all lines gives the ledger of `tests.crash.ledger`.
"""

import json
from collections import defaultdict
from pathlib import Path

from tests.crash.ledger import Entry, Write

Place = tuple[str, str]
"""Tenant and document id."""


class FileLedger:
    """The ledger of all documents, which one process at a time continues."""

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

    def settle(self, place: Place, found: int | None) -> bool:
        """See `Entry.settle`."""
        allowed = self.entries[place].settle(found)
        self._append("settle", place, found)
        return allowed

    def _append(self, event: str, place: Place, value: int | None) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps([event, *place, value]).encode() + b"\n")

    def _apply(self, event: str, tenant_id: str, name: str, value: int | None) -> None:
        entry = self.entries[tenant_id, name]
        if event == "send":
            entry.send(stores=bool(value))
        elif event == "acknowledge":
            found = next(each for each in entry.sent if each.number == value)
            entry.acknowledge(found)
            self.acknowledged += 1
        else:
            entry.settle(value)
