"""Test of the time that a check takes."""

from contextlib import closing
from pathlib import Path

import pytest

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.admin.checks import document_checks
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from tests.support.documents.fakes import collection_settings, prepared, sentences


def test_the_time_is_linear_in_the_number_of_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searching all document ids for the name of each document would make the time quadratic."""
    looked_up = []
    monkeypatch.setattr(document_checks, "document_name", lambda *key: looked_up.append(key) or "")
    with closing(open_for_writing(tmp_path / "store")) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        writer.put(writer.open("t", "c"), prepared("d", sentences(60)))
        assert check(store).problems == ()
    assert looked_up == []
