"""A new folder is durable with all the parent folders that were created for it."""

from pathlib import Path

import pytest

from hrag.host import durable_files


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths that are synced, in order."""
    paths: list[Path] = []
    monkeypatch.setattr(durable_files, "sync", paths.append)
    return paths


def test_the_folder_of_each_new_folder_is_synced(tmp_path: Path, synced: list[Path]) -> None:
    durable_files.make_folder(tmp_path / "a" / "b" / "c")
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_nothing_is_synced_for_a_folder_that_exists(tmp_path: Path, synced: list[Path]) -> None:
    durable_files.make_folder(tmp_path, exist_ok=True)
    assert synced == []
    with pytest.raises(FileExistsError):
        durable_files.make_folder(tmp_path)
