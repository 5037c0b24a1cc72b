"""What `hrag delete` tells of a run that ends early."""

import json

import pytest

from hrag.cli.documents import _Deletion
from hrag.errors import DocumentNotFound, ServiceUnavailable


class FakeClient:
    """Has the document `a`, and is gone when it is asked for `c`."""

    def delete_document(self, tenant_id: str, document_id: str, *, collection: str) -> int:
        if document_id == "c":
            raise ServiceUnavailable("gone")
        if document_id != "a":
            raise DocumentNotFound("no such one")
        return 7


def test_what_was_deleted_before_an_error_is_told(capsys):
    with pytest.raises(ServiceUnavailable):
        _Deletion(FakeClient(), "t", "default", as_json=True).delete_each(["b", "a", "c", "d"])
    assert json.loads(capsys.readouterr().out) == {
        "deleted": [{"document_id": "a", "sequence": 7}],
        "not_found": ["b"],
    }
