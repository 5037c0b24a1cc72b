"""A ledger of the writes to PostgreSQL in a file that survives the writing process.

The process appends a line before it sends a write, and a line after each acknowledgement. The
kernel keeps these lines when the process is killed. From all lines, the ledger of
`tests.crash.ledger` is restored.
"""

import json
from collections import defaultdict
from pathlib import Path

from tests.crash.ledger import Entry, Write

DocumentKey = tuple[str, str]
"""What identifies a document: its tenant and its id."""


class FileLedger:
    """The ledger of all documents in a file. Only one process at a time may append to it."""

    def __init__(self, path: Path) -> None:
        self.entries: dict[DocumentKey, Entry] = defaultdict(Entry)
        self.acknowledged = 0
        self._path = path
        if path.exists():
            # The other process may be writing the last line in this moment.
            whole, _, _ = path.read_text().rpartition("\n")
            for line in whole.splitlines():
                self._apply(*json.loads(line))

    def send(self, key: DocumentKey, *, stores: bool) -> Write:
        write = self.entries[key].send(stores=stores)
        self._append("send", key, int(stores))
        return write

    def acknowledge(self, key: DocumentKey, write: Write) -> None:
        self.entries[key].acknowledge(write)
        self.acknowledged += 1
        self._append("acknowledge", key, write.number)

    def settle(self, key: DocumentKey, stored: int | None) -> bool:
        """Calls `Entry.settle` for a document, appends a line, and returns the result."""
        allowed = self.entries[key].settle(stored)
        self._append("settle", key, stored)
        return allowed

    def _append(self, event: str, key: DocumentKey, value: int | None) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps([event, *key, value]).encode() + b"\n")

    def _apply(self, event: str, tenant_id: str, name: str, value: int | None) -> None:
        entry = self.entries[tenant_id, name]
        if event == "send":
            entry.send(stores=bool(value))
        elif event == "acknowledge":
            entry.acknowledge(next(write for write in entry.sent if write.number == value))
            self.acknowledged += 1
        else:
            entry.settle(value)
