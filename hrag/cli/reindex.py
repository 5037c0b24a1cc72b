"""`hrag reindex`: builds all indexes anew from the documents."""

from hrag.cli.console import output
from hrag.cli.options import DEFAULT_DATA_DIR, DataDir
from hrag.cli.render import counted
from hrag.plain_text import printable


def reindex(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Replace all segments by new ones, with the indexer stopped.

    Segments are derived from the documents, so nothing is lost. A collection's old segments
    serve until its new one is complete: a retriever may run, and loads it by itself. If it
    is interrupted, each collection has either its old segments or its new one. A collection
    without segments gets one from HRAG_SEGMENT_MIN_LEAVES leaves on.

    \b
    Example:
      hrag reindex --data-dir /var/lib/hrag
    """
    # Settings and storage are slow to import, and only some commands need them.
    from hrag.cli.administration import open_administration  # noqa: PLC0415
    from hrag.cli.audit_entry import audited  # noqa: PLC0415

    administration = open_administration(data_dir)
    console = output()
    collections = 0
    with audited("reindex", store=str(data_dir)) as entry:
        for done in administration.reindex():
            collections += 1
            entry["collections"] = collections
            name = printable(f"{done.tenant_id}/{done.name}")
            line = f"collection {name}: {done.leaves:,} leaves indexed"
            console.print(line, markup=False, soft_wrap=True)
    console.print(f"reindexed {counted(collections, 'collection')}", style="green")
