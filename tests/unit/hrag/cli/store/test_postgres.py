"""`hrag postgres`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hrag.cli.app import app
from hrag.cli.store import administration
from hrag.engine.reports import MigrationReport


class Migrating:
    location = "host=db"

    def __init__(self, before: int) -> None:
        self._before = before

    def administration(self) -> "Migrating":
        return self

    def migrate(self) -> MigrationReport:
        return MigrationReport(self._before, 3)


def migrate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["postgres", "migrate", *arguments], env={"NO_COLOR": "1"})


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (0, "migrated from schema version 0 to 3\n"),
        (3, "the store has schema version 3 already\n"),
    ],
)
def test_it_shows_the_versions(monkeypatch: pytest.MonkeyPatch, before: int, line: str) -> None:
    monkeypatch.setattr(administration, "open_store", lambda: Migrating(before))
    assert migrate().stdout == line
    assert json.loads(migrate("--json").stdout) == {"before": before, "after": 3}


def test_it_is_audited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(administration, "open_store", lambda: Migrating(1))
    monkeypatch.setenv("HRAG_AUDIT_FILE", str(tmp_path / "audit"))
    assert migrate().exit_code == 0
    (entry,) = map(json.loads, (tmp_path / "audit").read_text("utf-8").splitlines())
    shown = {name: entry[name] for name in ("method", "store", "before", "after")}
    assert shown == {"method": "postgres migrate", "store": "host=db", "before": 1, "after": 3}
    assert entry["outcome"] == "OK"


def test_an_embedded_store_needs_none() -> None:
    result = migrate()
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "error: an embedded store needs no migration: a store of another schema version is "
        "refused\n"
    )


def test_a_malformed_dsn_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HRAG_ENGINE", "postgres")
    monkeypatch.setenv("HRAG_POSTGRES_DSN", "host=db password=my secret")
    result = migrate()
    assert result.exit_code == 1
    assert result.stderr.startswith("error: HRAG_POSTGRES_DSN: must be a URI")
    assert "secret" not in result.stderr
