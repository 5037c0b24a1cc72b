"""What endurance tests share: room for large stores, a report."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endurance.report import Report


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Where a store may come to be; removed afterwards, for these are large."""
    yield tmp_path / "store"
    shutil.rmtree(tmp_path / "store", ignore_errors=True)


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """Prints the test's figures as they come."""
    return Report(capsys)
