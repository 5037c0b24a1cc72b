"""What a client knows of what it has written.

Every write of one thing has a number, higher than those before it. An answer makes a
write certain; those sent since may have happened or not. After a crash one of these must
be found, whole, and is the certain one from then on. A ledger's entries have one writer
each; anyone may look.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Write:
    """One write; it either stores the thing or deletes it."""

    number: int
    stores: bool


_NOTHING = Write(0, stores=False)
CREATED = 1
"""The number of the write that creates a collection, the first of its name."""


@dataclass(slots=True)
class Entry:
    """One document, or one collection as a whole."""

    certain: Write = _NOTHING
    sent: tuple[Write, ...] = ()
    """Without an answer yet, in order."""
    last: int = 0
    """The number of the newest write, whatever became of it."""
    revision: int = 0
    """The last acknowledged revision of the certain document's metadata; 0 as written."""
    revising: int = 0
    """The revision that was sent and has no answer yet; 0 for none."""

    def send(self, *, stores: bool) -> Write:
        """Notes a write that is about to be sent."""
        self.last += 1
        write = Write(self.last, stores)
        self.sent += (write,)
        return write

    def acknowledge(self, write: Write) -> None:
        """Notes the answer to a write; those sent before it are answered too."""
        self.sent = tuple(other for other in self.sent if other.number > write.number)
        self.certain = write
        self.revision = self.revising = 0

    def refuse(self, write: Write) -> None:
        """Notes that the service says it has kept nothing of a write."""
        self.sent = tuple(other for other in self.sent if other != write)

    def settle(self, found: int | None, revision: int = 0) -> bool:
        """Takes what a crash has left, None for nothing, as certain; False if it may not be."""
        for write in reversed((self.certain, *self.sent)):
            if (write.number if write.stores else None) == found:
                revisions = {self.revision, self.revising} - ({0} if self.revision else set())
                allowed = revisions if write == self.certain else {0}
                self.certain, self.sent = write, ()
                self.revision, self.revising = revision, 0
                return revision in allowed
        return False


@dataclass(slots=True)
class Collection:
    """A collection with its documents by id."""

    tenant_id: str
    name: str
    existence: Entry = field(default_factory=Entry)
    documents: dict[str, Entry] = field(default_factory=dict)

    def versions(self) -> dict[str, int]:
        """The certain documents with the number of their version."""
        return {
            document_id: entry.certain.number
            for document_id, entry in self.documents.items()
            if entry.certain.stores
        }
