"""`hrag reindex`: builds all indexes again from the documents."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from hrag.cli.options.shared import DEFAULT_DATA_DIR, AsJson, DataDir
from hrag.cli.terminal.console import print_json, print_line
from hrag.cli.terminal.render import counted


def reindex(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Replace all segments by new ones, with the indexer stopped.

    Segments are derived from the documents, so nothing is lost. A collection's old segments are
    used until its new segment is complete. A retriever may run meanwhile, and loads the new
    segment automatically. If the command is interrupted, each collection has either its old
    segments or its new one. A collection without segments gets one if it has at least
    HRAG_SEGMENT_MIN_LEAVES leaves. A collection with a damaged document keeps its segments; the
    document is reported at the end, and the exit code is 1.

    \b
    Example:
      hrag reindex --data-dir /var/lib/hrag
    """
    # Settings and storage are slow to import, and only some commands need them.
    from hrag.cli.store.administration import open_store  # noqa: PLC0415
    from hrag.cli.store.audit_entry import audited  # noqa: PLC0415
    from hrag.values.errors import DataLoss  # noqa: PLC0415

    store = open_store(data_dir)
    collections: list[dict[str, object]] = []
    try:
        with audited("reindex", store=store.location) as entry:
            for report in store.administration().reindex():
                collections.append(asdict(report))
                entry["collections"] = len(collections)
                if not as_json:
                    name = f"{report.tenant_id}/{report.name}"
                    print_line(f"collection {name}: {report.leaves:,} leaves indexed")
    except DataLoss:
        _show_total(collections, as_json=as_json)
        raise
    _show_total(collections, as_json=as_json)


def _show_total(collections: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    if as_json:
        print_json({"collections": collections})
    else:
        print_line(f"reindexed {counted(len(collections), 'collection')}", style="green")
