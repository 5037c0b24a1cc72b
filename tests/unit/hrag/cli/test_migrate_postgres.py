"""`hrag migrate` from an embedded store to PostgreSQL and back, on a real server."""

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
    return closing(open_engine(EngineSettings().model_copy(update=settings)))


def migrated(folder: Path, dsn_file: Path, source: str, target: str) -> dict[str, Any]:
    """Runs the command; returns its report."""
    words = ["migrate", "--from", source, "--to", target, "--dsn-file", str(dsn_file), "--json"]
    run = CliRunner().invoke(app, [*words, "--data-dir", str(folder)], env={"NO_COLOR": "1"})
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


def test_a_store_moves_there_and_back(postgres_dsn, tmp_path):
    here, back, dsn_file = tmp_path / "here", tmp_path / "back", tmp_path / "dsn"
    dsn_file.touch(0o600)
    dsn_file.write_text(postgres_dsn)
    with opened(data_dir=here) as engine:
        fill(engine.writer(), 4)
    there = migrated(here, dsn_file, "embedded", "postgres")
    assert there["copied"] == there["documents"] > 4
    with opened(engine="postgres", postgres_dsn=postgres_dsn) as engine:
        assert engine.administration().check().problems == ()
    assert migrated(here, dsn_file, "embedded", "postgres")["copied"] == 0
    assert migrated(back, dsn_file, "postgres", "embedded")["copied"] == there["copied"]
    with opened(data_dir=here) as one, opened(data_dir=back) as other:
        assert contents(one.reader()) == contents(other.reader())
