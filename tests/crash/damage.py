"""Damage to a stopped store that only `hrag check` finds."""

from contextlib import closing
from pathlib import Path

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import open_for_writing
from tests.support.engines.damage import delete_content


def lose_a_text(data_dir: Path) -> None:
    """Deletes tree, text and vectors of the first document of the first collection."""
    with closing(open_for_writing(data_dir)) as store, store.write() as txn:
        _, entry = next(store.scan(txn, "ordinals", schema.u32(1)))
        delete_content(txn, store.db, schema.read_document_entry(entry)[1])
