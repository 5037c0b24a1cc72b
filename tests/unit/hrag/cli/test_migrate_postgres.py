"""`hrag migrate` copies an embedded store to a real PostgreSQL server and back."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.config import EngineSettings
from hrag.engine import open_engine
from tests.support.documents.random_stores import contents, fill

pytestmark = pytest.mark.postgres


def opened(**settings: Any) -> Any:
    """Returns a context that opens an engine with these settings and closes it."""
    return closing(open_engine(EngineSettings().model_copy(update=settings)))


def migrated(folder: Path, dsn_file: Path, source: str, target: str) -> dict[str, Any]:
    """Runs the command and returns its report."""
    command = ["migrate", "--from", source, "--to", target, "--dsn-file", str(dsn_file), "--json"]
    result = CliRunner().invoke(app, [*command, "--data-dir", str(folder)], env={"NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_store_is_copied_to_postgres_and_back(postgres_dsn, tmp_path):
    original, copy, dsn_file = tmp_path / "original", tmp_path / "copy", tmp_path / "dsn"
    dsn_file.touch(0o600)
    dsn_file.write_text(postgres_dsn)
    with opened(data_dir=original) as engine:
        fill(engine.writer(), 4)
    report = migrated(original, dsn_file, "embedded", "postgres")
    assert report["copied"] == report["documents"] > 4
    with opened(engine="postgres", postgres_dsn=postgres_dsn) as engine:
        assert engine.administration().check().problems == ()
    assert migrated(original, dsn_file, "embedded", "postgres")["copied"] == 0
    assert migrated(copy, dsn_file, "postgres", "embedded")["copied"] == report["copied"]
    with opened(data_dir=original) as first, opened(data_dir=copy) as second:
        assert contents(first.reader()) == contents(second.reader())
