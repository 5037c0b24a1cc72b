"""A cache of values read from the store, shared by all transactions that see the same commit.

LMDB overwrites no page that its last commit or a running transaction refers to. So a value that
one transaction has read is valid in every transaction that sees the same commit, even if the value
points into LMDB's pages. Most searches see the same commit as the previous search. Then this cache
already contains the values that the previous search has looked up, verified and decoded. Each
look-up in LMDB also makes py-lmdb release and acquire Python's global lock; a cache hit avoids
this.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

# The maximum total size in bytes of the values in a cache.
_MAX_BYTES = 32 << 20
# The assumed size of a value in bytes if the caller of `keep` does not pass the size.
_ENTRY_BYTES = 300

T = TypeVar("T")


class CommitCache:
    """A cache of the values that read transactions with the id `txn_id` have read.

    Read transactions have the same id if they see the same commit. Each value is cached under a
    key. The key begins with the kind of the value, for example "document", so two values of
    different kinds never have equal keys. Threads may use the cache at the same time without a
    lock. If several threads miss the same value at the same time, each thread reads the value from
    LMDB. If a new value would make the cache larger than `max_bytes`, all earlier values are
    dropped.
    """

    __slots__ = ("_bytes", "_max_bytes", "_values", "txn_id")

    def __init__(self, txn_id: int, max_bytes: int = _MAX_BYTES) -> None:
        self.txn_id = txn_id
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """Returns the cached value under `key`, or None if no value is cached under it."""
        return self._values.get(key)

    def keep(self, key: Hashable, value: Any, size_bytes: int = _ENTRY_BYTES) -> None:
        """Caches `value` under `key`. `value` must not be None; it uses about `size_bytes`."""
        if self._bytes + size_bytes > self._max_bytes:
            self._bytes, self._values = 0, {}
        self._bytes += size_bytes
        self._values[key] = value

    def once(self, key: Hashable, read: Callable[..., T], *arguments: Any) -> T:
        """Returns the cached value under `key`.

        If no value is cached under it, calls `read` with the arguments, caches the result of `read`
        and returns it. Arguments take less time than a closure, which each call would create.
        """
        value: T | None = self._values.get(key)
        if value is None:
            value = read(*arguments)
            self.keep(key, value)
        return value


class NoCache(CommitCache):
    """A cache that stores nothing, for write transactions, because they change what they read."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0, 0)

    def keep(self, key: Hashable, value: Any, size_bytes: int = 0) -> None:
        """Does nothing, so that `get` always returns None."""
