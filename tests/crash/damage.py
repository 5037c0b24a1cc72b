"""Damages a stopped store in a way that only `hrag check` finds."""

from contextlib import closing
from pathlib import Path

from hrag.engine.embedded.store.environment import open_for_writing


def lose_a_text(data_dir: Path) -> None:
    """Deletes tree, text and vectors of the first document of the first collection."""
    with closing(open_for_writing(data_dir)) as store, store.write() as txn:
        entry = next(txn.ordinals.values(1))
        txn.contents.delete(entry.slot)
