"""`hrag rebuild`: makes all index files anew from the documents."""

from hrag.cli.console import Failure, output, printable
from hrag.cli.options import DEFAULT_DATA_DIR, DataDir


def rebuild(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Throw all segments away and make them anew, with the indexer stopped.

    Segments are derived from the documents, so nothing is lost. Each collection's old ones
    serve until its new one is complete: a retriever may run, and takes it up by itself.
    Ended at any point, each collection has either. A collection without segments gets one
    from HRAG_SEGMENT_MIN_LEAVES leaves on.

    \b
    Example:
      hrag rebuild --data-dir /var/lib/hrag
    """
    # Settings and storage are slow to import, and only some commands need them.
    from hrag import log  # noqa: PLC0415
    from hrag.config import IndexerSettings, SettingsError, load  # noqa: PLC0415
    from hrag.engine.embedded.maintenance import orphan_gc, segment_build  # noqa: PLC0415
    from hrag.engine.embedded.store import location, queries  # noqa: PLC0415
    from hrag.engine.embedded.store.environment import open_for_writing  # noqa: PLC0415
    from hrag.errors import StoreMissing  # noqa: PLC0415

    try:
        settings = load(IndexerSettings)
    except SettingsError as error:
        raise Failure(str(error)) from None
    log.configure("rebuild", settings.log_format, "warning")
    if not (data_dir / location.DATA).exists():
        raise StoreMissing(f"{data_dir} holds no store")
    console = output()
    store = open_for_writing(data_dir, settings.disk_reserve_bytes)
    try:
        collections = sorted(segment_build.all_collections(store))
        for number in collections:
            with store.read() as txn:
                record = queries.read_collection(store, txn, number)
            with location.explained_errors(data_dir):
                leaves = segment_build.rebuild(
                    store, number, settings.segment_min_leaves, lambda: None
                )
            name = printable(f"{record.tenant_id}/{record.name}")
            line = f"collection {name}: {leaves:,} leaves indexed"
            console.print(line, markup=False, soft_wrap=True)
        orphan_gc.Sweeper(store, grace_s=0).sweep()
    finally:
        store.close()
    console.print(f"rebuilt {len(collections):,} collections", style="green")
