"""The state and the decisions of maintenance: due collections, and retries of failed work.

Knows nothing of threads, clocks and stores: the caller passes the time and reports what happened.
Times are seconds of one clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class MaintenanceLimits:
    """How often maintenance works, and when writers wait for it. Durations are in seconds."""

    files_s: float = 1.0
    """Files are examined at most this often, because commits are much more frequent."""
    retry_s: float = 10.0
    """After a failure, for instance because of a full disk, the work is retried after this time."""
    retry_durations: int = 10
    """A build that failed is retried after this many times the duration of the attempt.

    So a merge that takes minutes and cannot succeed uses at most a tenth of the time, even if its
    collection changes often.
    """
    close_s: float = 5.0
    """Closing waits this long.

    Inserting a block of leaves takes less, writing a file may take more.
    """
    max_tail_bytes: int = 16 << 20
    """Writers wait while a tail exceeds this limit and the next one.

    A search scans 16 MiB of vectors (10,923 leaves of 384 dimensions) in one or two milliseconds.
    """
    max_tails: int = 2
    """This limit is in multiples of the threshold.

    It lets a second full tail collect while the first is sealed. Otherwise writers and sealing
    would wait for each other.
    """
    wait_s: float = 0.02
    """A writer that waits for a shorter tail checks it this often."""

    def retry_after(self, duration_s: float) -> float:
        """Returns the time until a build is retried whose attempt failed after `duration_s`."""
        return max(self.retry_s, self.retry_durations * duration_s)

    def is_too_long(self, tail_leaves: int, tail_bytes: int, threshold: int) -> bool:
        """Returns True if a tail is so long that writers must wait."""
        return tail_leaves >= self.max_tails * threshold and tail_bytes >= self.max_tail_bytes


class Task(Enum):
    """A task of the whole store. Each has the time before which it is not run again."""

    FILES = "files"
    RECLAIM = "reclaim"
    TAILS = "tails"
    """Sealing full tails during a long build of another segment."""


class Build(Enum):
    """A task of one collection. If it fails, it is retried later."""

    SEAL = "seal"
    MERGE = "merge"


@dataclass(slots=True)
class MaintenanceState:
    """The state of maintenance between two steps.

    * `changed` are the collections that were changed and not examined since.
    * `throttled` are the collections whose writers have had to wait since their last seal.
    * `retries_s` has the time before which a failed build of a collection is not tried again.
    * `due_s` has the time before which a task of the store is not run again.
    * `is_failing` is True if the last round failed as a whole.
    """

    limits: MaintenanceLimits = field(default_factory=MaintenanceLimits)
    changed: set[int] = field(default_factory=set)
    throttled: set[int] = field(default_factory=set)
    retries_s: dict[tuple[Build, int], float] = field(default_factory=dict)
    due_s: dict[Task, float] = field(default_factory=dict)
    is_failing: bool = False

    def add(self, collections: Iterable[int]) -> None:
        """Notes collections that have to be examined."""
        self.changed.update(collections)

    def take_due(self, now_s: float) -> set[int]:
        """Returns the collections that have changed or have a build to retry now.

        Afterwards no collection counts as changed.
        """
        changed, self.changed = self.changed, set()
        retried = {number for (_, number), due_s in self.retries_s.items() if due_s <= now_s}
        return changed | retried

    def may_build(self, build: Build, collection: int, now_s: float) -> bool:
        """Returns True unless the build has failed and is retried only later."""
        return now_s >= self.retries_s.get((build, collection), now_s)

    def built(self, build: Build, collection: int) -> None:
        """Notes that a build did not fail, so that it need not be retried."""
        self.retries_s.pop((build, collection), None)

    def failed(self, build: Build, collection: int, began_s: float, ended_s: float) -> float:
        """Notes that a build failed. Returns the time until it is retried."""
        retry_s = self.limits.retry_after(ended_s - began_s)
        self.retries_s[build, collection] = ended_s + retry_s
        return retry_s

    def is_due(self, task: Task, now_s: float) -> bool:
        """Returns True if a task of the store is to be run now."""
        return now_s >= self.due_s.get(task, 0.0)

    def postpone(self, task: Task, until_s: float) -> None:
        """Notes that a task of the store is not run before `until_s`."""
        self.due_s[task] = until_s

    def lets_wait(self, collection: int) -> bool:
        """Returns True if waiting until the collection's tail is sealed can help a writer.

        It cannot if the last round failed, or if sealing this tail has failed.
        """
        return not self.is_failing and (Build.SEAL, collection) not in self.retries_s
