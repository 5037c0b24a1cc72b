"""What was read of the store at one commit, for all transactions that see that commit.

LMDB overwrites no page that its last commit or a running transaction refers to. So what one
transaction has read, memory of LMDB's pages included, holds for every other one of the same
id. Most searches begin after the same commit as the one before: they find here what that one
has looked up, checked and unpacked, and need not let go of Python's lock for each look-up, as
py-lmdb does.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_MAX_BYTES = 32 << 20
_ENTRY_BYTES = 300  # Of an entry that says nothing of its size.

T = TypeVar("T")


class CommitCache:
    """Values by key, as the transactions with the id `txn_id` read them.

    A key begins with what its value is, because names of tenants and collections may be any words.
    Safe to use from several threads, without a lock: those in a race read twice. Once it has
    `max_bytes`, it is emptied.
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
        """Returns the value under `key`, or what `read` returns, which is kept."""
        value: T | None = self._values.get(key)
        if value is None:
            value = read()
            self.keep(key, value)
        return value


class NoCache(CommitCache):
    """Keeps nothing: for transactions that write, whose reads change."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0, 0)

    def keep(self, key: Hashable, value: Any, size_bytes: int = 0) -> None:
        """Does nothing."""
