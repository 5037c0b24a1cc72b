"""What endurance tests share: a clean environment, room for large stores, a report."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endurance.report import Report

_OURS = ("HRAG_", "HIERARCHICAL_", "SMALL_TO_BIG_", "OPENAI_")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """What a developer has exported must not reach the services under test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_OURS)]:
            patch.delenv(name)
        yield


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Where a store may come to be; removed afterwards, for these are large."""
    yield tmp_path / "store"
    shutil.rmtree(tmp_path / "store", ignore_errors=True)


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """Prints the test's figures as they come."""
    return Report(capsys)
