"""Fixtures of endurance tests: a folder for large stores, and a report."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endurance.report import Report


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """The folder of a store. It is removed after the test, because these stores are large."""
    yield tmp_path / "store"
    shutil.rmtree(tmp_path / "store", ignore_errors=True)


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """A report that prints the test's figures as they are measured."""
    return Report(capsys)
