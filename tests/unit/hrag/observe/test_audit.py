"""The audit log writes each entry as one line of its file."""

import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hrag.config import AuditSettings, SettingsError
from hrag.observe import audit
from hrag.observe.audit import Kind
from hrag.values.current_call import CURRENT, NO_CALL, Call


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "audit.log"
    audit.configure("indexer", AuditSettings(HRAG_AUDIT_FILE=path))
    yield path
    audit.close()


def _entries(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_an_entry_is_one_json_line_that_only_the_owner_may_read(path: Path) -> None:
    audit.record(Kind.CHANGE, method="DeleteDocument", document="a", sequence=7, collection="")
    (entry,) = _entries(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {"timestamp", "pid", "level"} <= entry.keys()
    fields = {name: entry[name] for name in ("event", "service", "kind", "method", "sequence")}
    assert fields == {
        "event": "audit",
        "service": "indexer",
        "kind": "change",
        "method": "DeleteDocument",
        "sequence": 7,
    }
    assert "collection" not in entry


class _Call(Call):
    def log_fields(self) -> dict[str, str]:
        return {"tenant": "of the call", "request_id": "r", "credential": "c"}


def test_an_entry_has_the_fields_of_its_call_and_may_override_them(path: Path) -> None:
    CURRENT.set(_Call())
    try:
        audit.record(Kind.CHANGE, tenant="of the document")
    finally:
        CURRENT.set(NO_CALL)
    (entry,) = _entries(path)
    assert (entry["tenant"], entry["request_id"]) == ("of the document", "r")
    assert entry["credential"] == "c"


def test_a_new_file_is_opened_after_a_rotation(path: Path) -> None:
    audit.record(Kind.READ, method="one")
    rotated = path.rename(path.with_suffix(".1"))
    audit.record(Kind.READ, method="two")
    assert [entry["method"] for entry in _entries(rotated)] == ["one"]
    assert [entry["method"] for entry in _entries(path)] == ["two"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_entry_that_cannot_be_written_to_the_file_is_written_to_the_log(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(logging.FileHandler, "emit", fail)
    audit.record(Kind.CHANGE, method="DeleteCollection")
    assert '"method": "DeleteCollection"' in capsys.readouterr().err


def test_a_file_that_cannot_be_created_is_an_invalid_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="HRAG_AUDIT_FILE"):
        audit.configure("indexer", AuditSettings(HRAG_AUDIT_FILE=tmp_path / "none" / "audit.log"))


def test_refusals_of_unread_requests_are_counted_and_written_at_the_end(path: Path) -> None:
    for _ in range(30):
        audit.refused_unread("TOO_BUSY", "Search")
    assert path.read_text() == ""
    audit.close()
    (entry,) = _entries(path)
    assert (entry["kind"], entry["reason"], entry["count"]) == ("refusals", "TOO_BUSY", 30)
