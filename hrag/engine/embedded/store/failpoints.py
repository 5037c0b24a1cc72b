"""Failpoints: named moments at which a test may end the process.

In production `reach` does nothing: only tests `install` a hook. A failpoint is named for
what has just happened.
"""

from collections.abc import Callable

POINTS = (
    "put.written",  # In the transaction, before its commit.
    "put.committed",  # On disk, not yet acknowledged.
    "metadata.written",
    "metadata.committed",
    "delete.written",
    "delete.committed",
    "summaries.written",
    "summaries.committed",
    "seal.built",  # A tail's index is in memory.
    "merge.built",
    "postings.written",  # Beside the index; the rows are not.
    "segment.written",  # Files exist under their temporary name.
    "segment.synced",
    "segment.renamed",  # No manifest lists them yet.
    "publish.written",
    "publish.committed",  # The segments it replaces are still on disk.
    "segment.removed",
    "reclaim.written",
    "reclaim.committed",
)

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Calls `hook` with the name of every failpoint that is reached from now on."""
    global _hook  # noqa: PLW0603 - one hook for the whole process is what tests need
    _hook = hook


def reach(name: str) -> None:
    """Calls the installed hook, if any, with the failpoint's name."""
    if _hook is not None:
        _hook(name)
