"""Reading whole documents that change meanwhile."""

from types import SimpleNamespace

import pytest

from hrag.cli.exchange.stored_documents import DocumentReader
from hrag.errors import DocumentChanged, DocumentNotFound
from hrag.types import DocumentInfo

INFO = DocumentInfo("d", "", "", "", {}, (1,), 1, 1, 0, 0, sequence=1)


@pytest.mark.parametrize("error", [DocumentChanged("11 times"), DocumentNotFound("gone")])
def test_a_document_without_one_version_to_read_is_left_out(error):
    def get_text(*_, **__):
        raise error

    client = SimpleNamespace(get_text=get_text, get_document=lambda *_, **__: INFO)
    assert DocumentReader(client, "t", "c").with_pages(INFO) is None
