"""A cache of values read from the store, shared by all transactions that see the same commit.

LMDB overwrites no page that its last commit or a running transaction refers to. So a value that
one transaction has read is valid for every other transaction with the same id, even if the value
points into LMDB's pages. Most searches see the same commit as the search before them. They find
here what the earlier search has looked up, checked and unpacked. A cache hit also avoids releasing
and taking Python's global lock, which py-lmdb does at each look-up.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_MAX_BYTES = 32 << 20
# The assumed size of an entry whose caller does not state one.
_ENTRY_BYTES = 300

T = TypeVar("T")


class CommitCache:
    """Values by key, as the transactions with the id `txn_id` read them.

    A key begins with the kind of its value, because tenants and collections may have any names.
    Threads may use the cache at the same time without a lock: in a race, several of them read the
    same value. An entry that would make the cache exceed `max_bytes` empties it first.
    """

    __slots__ = ("_bytes", "_max_bytes", "_values", "txn_id")

    def __init__(self, txn_id: int, max_bytes: int = _MAX_BYTES) -> None:
        self.txn_id = txn_id
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """Returns the value that was kept under `key`, None if there is none."""
        return self._values.get(key)

    def keep(self, key: Hashable, value: Any, size_bytes: int = _ENTRY_BYTES) -> None:
        """Keeps a value, which is not None and takes `size_bytes` of memory."""
        if self._bytes + size_bytes > self._max_bytes:
            self._bytes, self._values = 0, {}
        self._bytes += size_bytes
        self._values[key] = value

    def once(self, key: Hashable, read: Callable[[], T]) -> T:
        """Returns the value under `key`; if there is none, calls `read` and keeps its result."""
        value: T | None = self._values.get(key)
        if value is None:
            value = read()
            self.keep(key, value)
        return value


class NoCache(CommitCache):
    """A cache that keeps nothing, for write transactions: they change what they read."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0, 0)

    def keep(self, key: Hashable, value: Any, size_bytes: int = 0) -> None:
        """Does nothing."""
