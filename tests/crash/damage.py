"""Damage to a stopped store that only `hrag check` finds."""

from contextlib import closing
from pathlib import Path

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import open_for_writing


def lose_a_text(data_dir: Path) -> None:
    """Deletes the text of the first document of the first collection."""
    with closing(open_for_writing(data_dir)) as store, store.write() as txn:
        _, ordinal = next(store.scan(txn, "document_ids", schema.u32(1)))
        txn.delete(bytes(ordinal), db=store.db["texts"])
