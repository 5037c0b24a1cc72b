"""The lines of an export as documents."""

from io import BytesIO

import pytest

from hrag.cli.exchange import imports
from hrag.cli.ingest.input_document import Unreadable
from hrag.cli.ingest.lines import lines_of


def test_each_line_is_a_document_and_a_long_one_fails_alone(monkeypatch):
    monkeypatch.setattr(imports, "MAX_LINE_BYTES", 30)
    file = BytesIO(b'{"id": "a", "text": "x"}\n\n{"id": "b", "text": "too long, it is"}\n{}')
    good, long, bad = imports._documents(lines_of(file, 30))
    assert (good.label, good.read().document.document_id) == ("line 1", "a")
    assert (long.label, bad.label) == ("line 3", "line 4")
    with pytest.raises(Unreadable, match="39 bytes; at most 30"):
        long.read()
    with pytest.raises(Unreadable, match="id is missing"):
        bad.read()
