"""`hrag compact`: gives the disk back what deleted documents took."""

from rich.filesize import decimal

from hrag.cli.console import output
from hrag.cli.options import DEFAULT_DATA_DIR, DataDir


def compact(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Shrink a store's file, with both services stopped.

    The space of deleted and replaced documents is used again by later ones; the file
    itself never shrinks by itself. This writes a compact copy and puts it in the file's
    place, so the disk must hold both for a while. Ended at any point, the store is as
    before or compacted.

    \b
    Example:
      hrag compact --data-dir /var/lib/hrag
    """
    # Storage is slow to import, and only some commands need it.
    from hrag.engine.embedded.admin.vacuum import compact as compact_store  # noqa: PLC0415

    done = compact_store(data_dir)
    output().print(
        f"compacted from {decimal(done.before_bytes)} to {decimal(done.after_bytes)} "
        f"({done.before_bytes:,} to {done.after_bytes:,} bytes)",
        style="green",
        markup=False,
        soft_wrap=True,
    )
