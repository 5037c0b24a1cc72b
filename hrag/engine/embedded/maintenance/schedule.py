"""The state and the decisions of maintenance: which collections are due, and what is retried when.

This module uses no threads, no clocks and no stores. The caller passes the current time, and
reports which builds and tasks have succeeded or failed. All times are seconds of the caller's
clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class MaintenanceLimits:
    """How often maintenance works, and when writers wait for maintenance.

    Durations are in seconds.
    """

    files_s: float = 1.0
    """The files of segments are examined at this interval, not after each of the many commits."""
    retry_s: float = 10.0
    """Work that failed, for instance because of a full disk, is retried after this time."""
    retry_durations: int = 10
    """A build that failed is retried after this many times the duration of the failed build.

    So a merge that takes minutes and fails again and again uses at most a tenth of the thread's
    time, even if its collection changes often.
    """
    close_s: float = 5.0
    """`close` waits at most this long until the thread ends.

    The thread may still have to insert a block of leaves, which takes less time, or to write a
    file, which may take more time.
    """
    max_tail_bytes: int = 16 << 20
    """Writers wait while the vectors of a tail take this many bytes.

    They wait only if `max_tails` is exceeded, too. A search scans 16 MiB of vectors (10,923 leaves
    of 384 dimensions) in one or two milliseconds.
    """
    max_tails: int = 2
    """Writers wait while a tail has this many times the leaves at which a tail is sealed.

    They wait only if `max_tail_bytes` is exceeded, too. With the limit 2, a tail can become full
    again while its first leaves are sealed. Otherwise writers and sealing would wait for each
    other.
    """
    wait_s: float = 0.02
    """A writer that waits for a shorter tail checks the length of the tail at this interval."""

    def retry_after(self, duration_s: float) -> float:
        """Returns the time to wait before a failed build is retried, in seconds.

        `duration_s` is the time that the build had run when it failed.
        """
        return max(self.retry_s, self.retry_durations * duration_s)

    def is_too_long(self, tail_leaves: int, tail_bytes: int, threshold: int) -> bool:
        """Returns True if a tail is so long that writers must wait.

        `tail_leaves` is the count of leaves in the tail, and `tail_bytes` is the size of their
        vectors together. A tail is sealed when it has `threshold` leaves.
        """
        return tail_leaves >= self.max_tails * threshold and tail_bytes >= self.max_tail_bytes


class Task(Enum):
    """A task of maintenance for the whole store.

    After each run of a task, a certain time must pass before the task is run again.
    """

    FILES = "files"
    RECLAIM = "reclaim"
    TAILS = "tails"
    """Seals the full tails of all collections during the long build of another segment."""


class Build(Enum):
    """A kind of segment build: to seal the tail of a collection, or to merge its segments."""

    SEAL = "seal"
    MERGE = "merge"


@dataclass(slots=True)
class MaintenanceState:
    """Which collections and tasks are due, and what has failed. Collections are stored as ids.

    * `changed` are the collections that writers have changed since the worker last checked whether
      a build is due for them.
    * `throttled` are the collections whose writers had to wait. A collection is removed when its
      tail is not full any more.
    * `retries_s` has, for each failed build of a collection, the time at which it may be retried.
    * `due_s` has, for each task of the store, the time at which it may be run again.
    * `is_failing` is True if an error ended the worker's last round. In each round, the worker runs
      all tasks and builds that are due.
    """

    limits: MaintenanceLimits = field(default_factory=MaintenanceLimits)
    changed: set[int] = field(default_factory=set)
    throttled: set[int] = field(default_factory=set)
    retries_s: dict[tuple[Build, int], float] = field(default_factory=dict)
    due_s: dict[Task, float] = field(default_factory=dict)
    is_failing: bool = False

    def add(self, collections: Iterable[int]) -> None:
        """Adds the collections with these ids to the changed collections."""
        self.changed.update(collections)

    def take_due(self, now_s: float) -> set[int]:
        """Returns the ids of the collections for which a build may be due now.

        These are the collections in `changed`, and the collections with a failed build that may be
        retried at the time `now_s`.

        Also empties `changed`.
        """
        changed, self.changed = self.changed, set()
        retried = {number for (_, number), due_s in self.retries_s.items() if due_s <= now_s}
        return changed | retried

    def may_build(self, build: Build, collection: int, now_s: float) -> bool:
        """Returns True if this kind of build may be run for the collection at the time `now_s`.

        Returns False if the last build of this kind failed and may not be retried yet.
        """
        return now_s >= self.retries_s.get((build, collection), now_s)

    def built(self, build: Build, collection: int) -> None:
        """Notes that a build of a collection has succeeded, so that it need not be retried."""
        self.retries_s.pop((build, collection), None)

    def failed(self, build: Build, collection: int, began_s: float, ended_s: float) -> float:
        """Notes that a build of a collection failed.

        Returns how long to wait before the build is retried, in seconds. `began_s` and `ended_s`
        are the times at which the build began and failed.
        """
        retry_s = self.limits.retry_after(ended_s - began_s)
        self.retries_s[build, collection] = ended_s + retry_s
        return retry_s

    def is_due(self, task: Task, now_s: float) -> bool:
        """Returns True if a task of the store may be run at the time `now_s`."""
        return now_s >= self.due_s.get(task, 0.0)

    def postpone(self, task: Task, until_s: float) -> None:
        """Notes that a task of the store must not be run before the time `until_s`."""
        self.due_s[task] = until_s

    def lets_wait(self, collection: int) -> bool:
        """Returns True if a writer may wait until the collection's tail is sealed.

        Returns False if an error ended the worker's last round of tasks and builds. Also returns
        False if the last attempt to seal this tail failed. In both cases the tail may never be
        sealed, so the writer must not wait for it.
        """
        return not self.is_failing and (Build.SEAL, collection) not in self.retries_s
