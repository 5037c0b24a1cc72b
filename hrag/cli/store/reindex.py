"""`hrag reindex`: builds all indexes anew from the documents."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from hrag.cli.options.shared import DEFAULT_DATA_DIR, AsJson, DataDir
from hrag.cli.terminal.console import print_json, print_line
from hrag.cli.terminal.render import counted


def reindex(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Replace all segments by new ones, with the indexer stopped.

    Segments are derived from the documents, so nothing is lost. A collection's old segments
    serve until its new one is complete: a retriever may run, and loads it by itself. If it
    is interrupted, each collection has either its old segments or its new one. A collection
    without segments gets one from HRAG_SEGMENT_MIN_LEAVES leaves on. One with a damaged document
    keeps what it has; the document is named at the end, and the exit code is 1.

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
            for done in store.administration().reindex():
                collections.append(asdict(done))
                entry["collections"] = len(collections)
                if not as_json:
                    name = f"{done.tenant_id}/{done.name}"
                    print_line(f"collection {name}: {done.leaves:,} leaves indexed")
    except DataLoss:
        _show_total(collections, as_json=as_json)
        raise
    _show_total(collections, as_json=as_json)


def _show_total(collections: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    if as_json:
        print_json({"collections": collections})
    else:
        print_line(f"reindexed {counted(len(collections), 'collection')}", style="green")
