"""Test of a store whose folder is moved while the store is open."""

from contextlib import closing

import pytest

from hrag.engine.embedded.store.environment import open_for_reading, open_for_writing
from hrag.engine.embedded.store.totals import measure
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import StoreUnavailable
from tests.support.documents.fakes import collection_settings, prepared, sentences


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_until_the_folder_is_back(tmp_path, replaced):
    folder, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    with closing(open_for_writing(folder, reserve_bytes=1 << 20)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        collection = writer.open("t", "c")
        writer.put(collection, prepared("a", sentences(3)))
        folder.rename(elsewhere)
        if replaced:
            open_for_writing(folder).close()
        for call in (
            lambda: writer.put(collection, prepared("b", sentences(3))),
            lambda: writer.delete(collection, "a"),
            lambda: writer.delete_collection("t", "c"),
            lambda: writer.create_collection("t", "d", collection_settings()),
            lambda: measure(store),
            store.require_place,
        ):
            with pytest.raises(StoreUnavailable, match="was moved, replaced or removed"):
                call()
        assert writer.document(collection, "a").document_id == "a"
        if not replaced:
            elsewhere.rename(folder)
            writer.put(collection, prepared("b", sentences(3)))
    with closing(open_for_reading(elsewhere if replaced else folder)) as store:
        writer = EmbeddedWriter(store)
        names = [each.document_id for each in writer.documents(collection, 9, "").items]
    assert names == (["a"] if replaced else ["a", "b"])
