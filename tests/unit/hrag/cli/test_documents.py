"""`hrag delete` reports the documents that it has deleted, even if it ends with an error."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from hrag.cli import documents
from hrag.cli.app import app
from hrag.cli.terminal import ExitCode
from hrag.errors import DocumentNotFound, ServiceUnavailable


class FakeClient:
    """A client of an indexer that has the document `a`, and cannot be reached for `c`."""

    def delete_document(self, tenant_id: str, document_id: str, *, collection: str) -> int:
        if document_id == "c":
            raise ServiceUnavailable("gone")
        if document_id != "a":
            raise DocumentNotFound("no such document")
        return 7


def test_documents_that_were_deleted_before_an_error_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def connect(*_: object, **__: object) -> Iterator[FakeClient]:
        yield FakeClient()

    monkeypatch.setattr(documents, "connect", connect)
    result = CliRunner().invoke(app, ["delete", "b", "a", "c", "d", "--json"])
    assert result.exit_code == ExitCode.UNAVAILABLE
    assert json.loads(result.stdout) == {
        "deleted": [{"document_id": "a", "sequence": 7}],
        "not_found": ["b"],
    }
