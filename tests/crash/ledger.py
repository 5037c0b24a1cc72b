"""A ledger: what a client knows about the documents and collections that it has written.

Every write of a document has a number, which is higher than the numbers of the writes before it.
A response makes a write certain. Writes that were sent after it may have happened or not. After a
crash, the certain write or one of those must be stored completely; it is then the certain write.
Each entry of a ledger has only one writer; any thread may read it.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Write:
    """A write, which either stores or deletes the document or collection."""

    number: int
    stores: bool


_NOTHING = Write(0, stores=False)
CREATED = 1
"""The number of the write that creates a collection, the first of its name."""


@dataclass(slots=True)
class Entry:
    """The writes of a document, or of a collection as a whole."""

    certain: Write = _NOTHING
    sent: tuple[Write, ...] = ()
    """The writes without a response yet, in order."""
    last: int = 0
    """The number of the newest write; the write may have failed."""
    revision: int = 0
    """The last acknowledged revision of the certain document's metadata; 0 if there is none."""
    revising: int = 0
    """The revision that was sent and has no response yet; 0 if there is none."""

    def send(self, *, stores: bool) -> Write:
        """Records a write that is about to be sent."""
        self.last += 1
        write = Write(self.last, stores)
        self.sent += (write,)
        return write

    def acknowledge(self, write: Write) -> None:
        """Records the response to a write, which acknowledges all writes before it too."""
        self.sent = tuple(other for other in self.sent if other.number > write.number)
        self.certain = write
        self.revision = self.revising = 0

    def refuse(self, write: Write) -> None:
        """Records that the service has rejected a write and stored nothing of it."""
        self.sent = tuple(other for other in self.sent if other != write)

    def settle(self, stored: int | None, revision: int = 0) -> bool:
        """Makes the write that is stored after a crash certain.

        `stored` is its number; None if nothing is stored. Returns False if no write that may have
        happened left the store in this state.
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
    """The ledger of a collection, with its documents by id."""

    tenant_id: str
    name: str
    existence: Entry = field(default_factory=Entry)
    documents: dict[str, Entry] = field(default_factory=dict)

    def versions(self) -> dict[str, int]:
        """Returns the version number of each document that is certainly stored."""
        return {
            document_id: entry.certain.number
            for document_id, entry in self.documents.items()
            if entry.certain.stores
        }
