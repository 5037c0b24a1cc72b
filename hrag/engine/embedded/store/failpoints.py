"""Failpoints: named points in the code at which a test may end the process.

The code calls `reach` at each failpoint. In production, `reach` does nothing; tests `install` a
function that `reach` calls. A failpoint is named after the step that has just been completed.
"""

from collections.abc import Callable

POINTS = (
    "put.written",  # The transaction of the put is not committed yet.
    "put.committed",  # The document is on disk, but the put has not returned yet.
    "metadata.written",
    "metadata.committed",
    "delete.written",
    "delete.committed",
    "summaries.written",
    "summaries.committed",
    "seal.built",  # The new segment's index is in memory, and the segment has no files yet.
    "merge.built",
    "postings.written",  # The postings file is written. The file `rows.npz` is not written yet.
    "segment.written",  # The segment's files exist in a folder with a temporary name.
    "segment.synced",
    "segment.renamed",  # The files have their final names, but no manifest lists the segment.
    "publish.written",
    "publish.committed",  # The manifest lists the new segment. Replaced segments still have files.
    "segment.removed",
    "reclaim.written",
    "reclaim.committed",
)

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Makes `reach` call `hook` with the failpoint's name; with None, `reach` does nothing."""
    global _hook  # noqa: PLW0603 - tests need one hook for the whole process
    _hook = hook


def reach(name: str) -> None:
    """Calls the installed hook with the failpoint's name; does nothing if no hook is installed."""
    if _hook is not None:
        _hook(name)
