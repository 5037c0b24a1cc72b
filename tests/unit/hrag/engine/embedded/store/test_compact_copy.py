"""A copy of LMDB's file has the same entries, also of keys with pages of values."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hrag.engine.embedded.store.environment import Store, open_alone, open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from tests.support.documents.fakes import collection_settings, prepared, sentences

# The pages that the last transactions leave free.
_FREE_BYTES = 16 * 4096


def contents(store: Store) -> dict[str, list[tuple[bytes, bytes]]]:
    with store.read() as txn:
        return {
            name: [(bytes(key), bytes(value)) for key, value in txn.raw.cursor(database.handle)]
            for name, database in store.databases.items()
        }


@pytest.mark.parametrize("documents", [0, 1, 300, 1100])
@pytest.mark.parametrize("compact", [True, False])
def test_a_copy_has_the_entries_of_the_store(tmp_path: Path, documents: int, compact: bool) -> None:
    """All documents share a metadata value, so the key of its term has pages of values."""
    copied = tmp_path / "copy"
    copied.mkdir()
    with closing(open_for_writing(tmp_path / "store")) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        collection = writer.open("t", "c")
        document = prepared("d", sentences(1), metadata={"team": "garden"})
        for number in range(documents):
            writer.put(collection, replace(document, document_id=f"d{number}"))
        store.copy_to(copied, compact=compact)
        with closing(open_alone(copied)) as copy:
            assert contents(copy) == contents(store)
            assert copy.used_bytes <= store.used_bytes + _FREE_BYTES
    assert [path.name for path in copied.iterdir()] == ["data.mdb"]
