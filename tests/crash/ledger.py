"""A ledger: what a client knows about the documents and collections that it has written.

The writes of a document are numbered in their order, from 1. The number of a write is also the
version that it stores. A response makes a write certain. A write that was sent later and has no
response yet may have happened or not. So after a crash, the store must have the complete result of
the certain write or of one of those later writes, which then becomes the certain write. Only one
thread writes an entry of a ledger; any thread may read it.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Write:
    """A write of a document or collection: it stores it, or deletes it if `stores` is False."""

    number: int
    stores: bool


_NOTHING = Write(0, stores=False)
CREATED = 1
"""The number of the write that creates a collection. It is the first write of its name."""


@dataclass(slots=True)
class Entry:
    """The state of the writes to one document, or to one collection as a whole."""

    certain: Write = _NOTHING
    sent: tuple[Write, ...] = ()
    """The writes without a response yet, in order."""
    last: int = 0
    """The number of the write that was sent last; this write may have failed."""
    revision: int = 0
    """The last acknowledged change of the metadata of the certain version; 0 if there is none.

    The changes of a version's metadata are also numbered from 1.
    """
    revising: int = 0
    """The change of metadata that was sent and has no response yet; 0 if there is none."""

    def send(self, *, stores: bool) -> Write:
        """Records a write that is about to be sent."""
        self.last += 1
        write = Write(self.last, stores)
        self.sent += (write,)
        return write

    def acknowledge(self, write: Write) -> None:
        """Records the response to a write. It also acknowledges all earlier writes."""
        self.sent = tuple(other for other in self.sent if other.number > write.number)
        self.certain = write
        self.revision = self.revising = 0

    def refuse(self, write: Write) -> None:
        """Records that the service has rejected a write, which therefore stored nothing."""
        self.sent = tuple(other for other in self.sent if other != write)

    def settle(self, stored: int | None, revision: int = 0) -> bool:
        """Makes the write that is stored after a crash certain.

        `stored` is the version that is stored, or None if nothing is stored. `revision` is the last
        change of its metadata. Returns False if no write that may have happened leaves the store in
        this state.
        """
        for write in reversed((self.certain, *self.sent)):
            if (write.number if write.stores else None) == stored:
                revisions = {self.revision, self.revising} - ({0} if self.revision else set())
                allowed = revisions if write == self.certain else {0}
                self.certain, self.sent = write, ()
                self.revision, self.revising = revision, 0
                return revision in allowed
        return False


@dataclass(slots=True)
class Collection:
    """The ledger of one collection. `documents` has the entry of each document, by its id."""

    tenant_id: str
    name: str
    existence: Entry = field(default_factory=Entry)
    documents: dict[str, Entry] = field(default_factory=dict)

    def versions(self) -> dict[str, int]:
        """Returns the certain version of each document that is certainly stored, by document id."""
        return {
            document_id: entry.certain.number
            for document_id, entry in self.documents.items()
            if entry.certain.stores
        }
