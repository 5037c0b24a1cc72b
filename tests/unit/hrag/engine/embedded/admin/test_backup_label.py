"""Tests of `backup.json`, the label of a backup: it is checked before anything is restored."""

import json
from pathlib import Path

import pytest

from hrag.engine.embedded.admin.backup import backup, restore
from hrag.engine.embedded.store.environment import Store
from hrag.errors import StoreUnavailable


@pytest.fixture
def backup_folder(store: Store, tmp_path: Path) -> Path:
    """The folder of a backup of an empty store."""
    backup(store, tmp_path / "made", ignore_progress)
    return tmp_path / "made"


def ignore_progress(line: str) -> None:
    pass


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"documents": 3}'])
def test_a_folder_without_a_readable_label_is_refused(tmp_path, content):
    (tmp_path / "b").mkdir()
    if content is not None:
        (tmp_path / "b" / "backup.json").write_text(content)
    with pytest.raises(StoreUnavailable, match=r"is no backup of `hrag backup`: the file backup"):
        restore(tmp_path / "b", tmp_path / "new", ignore_progress)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("documents", value) for value in ("x", 1.5, True, -1, 1 << 63)),
        *(("created", value) for value in (7, "\x1b[2J", "2026-03-01T12:00:00+00:00\n")),
        ("data_sha256", "0" * 63),
    ],
)
def test_a_label_with_a_wrong_value_is_refused_before_anything_is_restored(
    backup_folder, tmp_path, field, value
):
    path = backup_folder / "backup.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(
        StoreUnavailable, match=f"is no backup .*{field} is .*; it must be"
    ) as refused:
        restore(backup_folder, tmp_path / "new", ignore_progress)
    assert refused.value.message.isprintable()
    assert not (tmp_path / "new").exists()


def test_a_label_with_an_unknown_field_is_refused(backup_folder, tmp_path):
    path = backup_folder / "backup.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))
    with pytest.raises(
        StoreUnavailable, match=r"the file must have the fields documents, .* no other fields"
    ):
        restore(backup_folder, tmp_path / "new", ignore_progress)
