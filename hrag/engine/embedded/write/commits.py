"""Commits changes of documents, and reports the changed collections to the maintenance thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from hrag.engine.embedded.store.change_log import MAX_LOG_ENTRIES
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.write.transaction import WriteTransaction
from hrag.values.deadline import Deadline
from hrag.values.quotas import QuotaOf, unlimited


class IndexMaintenance(Protocol):
    """Builds and merges the segments of the store in the background."""

    def changed(self, collection: int) -> None:
        """Notes that a collection has changed. The writer calls this method after each commit.

        `collection` is the id of the collection.
        """

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        """Waits while too many leaves of the collection are in no segment yet (backpressure).

        Raises DeadlineExceeded or Cancelled.
        """


class Commits:
    """Begins and commits the transactions of a writer.

    Without `maintenance`, no segments are built, and writes never wait for maintenance. `quota_of`
    returns the quota of a tenant. The change log of a collection has at most `max_log_entries`
    entries.
    """

    def __init__(
        self,
        store: Store,
        maintenance: IndexMaintenance | None = None,
        max_log_entries: int = MAX_LOG_ENTRIES,
        quota_of: QuotaOf = unlimited,
    ) -> None:
        self.store = store
        self.maintenance = maintenance
        self.quota_of = quota_of
        self._max_log_entries = max_log_entries

    @contextmanager
    def changes(self, failpoint: str, extra_bytes: int | None = None) -> Iterator[WriteTransaction]:
        """Begins a write transaction, and commits it at the end of the block.

        If the block raises an exception, nothing is changed. `extra_bytes` is an upper bound of the
        bytes that the changes add to the store. If it is None, the block may only delete, and the
        transaction may use the disk space that is reserved for deletions. A test may end the
        process at two failpoints: before the commit at `{failpoint}.written`, and after the commit
        at `{failpoint}.committed`.
        """
        store = self.store
        with store.write() if extra_bytes is None else store.growing_write(extra_bytes) as txn:
            changes = WriteTransaction(txn, self._max_log_entries, self.quota_of)
            yield changes
            changes.finish()
            reach(f"{failpoint}.written")
        reach(f"{failpoint}.committed")
        self.notify_maintenance(*changes.changed)

    def notify_maintenance(self, *collections: int) -> None:
        """Tells the maintenance thread that a commit has changed the collections with these ids."""
        if self.maintenance is not None:
            for number in collections:
                self.maintenance.changed(number)


class WriterPart:
    """The base of the classes that `EmbeddedWriter` is composed of.

    Each of these classes implements the writer's methods for one subject, for example documents.
    All classes share `commits`, and no class uses another class.
    """

    def __init__(self, commits: Commits) -> None:
        self.commits = commits
