"""`hrag vacuum`: returns the disk space of deleted documents to the file system."""

from dataclasses import asdict

from rich.filesize import decimal

from hrag.cli.options.shared import DEFAULT_DATA_DIR, AsJson, DataDir
from hrag.cli.terminal.console import output, print_json


def vacuum(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Shrink a store's file, with both services stopped.

    Later documents reuse the space of deleted and replaced ones, but the file never shrinks by
    itself. The command writes a compact copy and then replaces the file by it, so the disk needs
    space for both. If the command is interrupted, the store is either unchanged or completely
    vacuumed.

    \b
    Example:
      hrag vacuum --data-dir /var/lib/hrag
    """
    # Settings and storage are slow to import, and only some commands need them.
    from hrag.cli.store.administration import open_store  # noqa: PLC0415
    from hrag.cli.store.audit_entry import audited  # noqa: PLC0415

    store = open_store(data_dir)
    with audited("vacuum", store=store.location) as entry:
        report = store.administration().vacuum()
        entry.update(before_bytes=report.before_bytes, after_bytes=report.after_bytes)
    if as_json:
        print_json(asdict(report))
        return
    output().print(
        f"vacuumed from {decimal(report.before_bytes)} to {decimal(report.after_bytes)} "
        f"({report.before_bytes:,} to {report.after_bytes:,} bytes)",
        style="green",
        markup=False,
        soft_wrap=True,
    )
