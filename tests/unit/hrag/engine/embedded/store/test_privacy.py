"""Tests of file modes: only the owner may use a store's files; wider modes are corrected."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded.admin.backup import backup, restore
from hrag.engine.embedded.admin.vacuum import vacuum
from hrag.engine.embedded.segments.damage import report_damage
from hrag.engine.embedded.store import privacy
from hrag.engine.embedded.store.environment import Store, open_for_reading, open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences

NOBODY = 65534


@pytest.fixture(params=[0o000, 0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def assert_private(folder: Path) -> None:
    """Asserts that `folder` and all folders in it have the mode 0700, and all files 0600."""
    wrong = {
        str(path): oct(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
        if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)
    }
    assert wrong == {}


def add_segment(store: Store) -> None:
    """Creates a collection with a segment, and reports that segment as damaged."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    collection = writer.open("t", "c")
    writer.put(collection, prepared("d", sentences(60)))
    record = seal(store, collection.collection_id)
    report_damage(store.segments, record.segment_id)


@pytest.mark.usefixtures("_umask")
def test_all_files_and_folders_are_created_private(tmp_path):
    """This includes the files that hnswlib, LMDB and numpy create, and copies of a store."""
    store_folder, copy, restored = (tmp_path / name for name in ("store", "backup", "restored"))
    with closing(open_for_writing(store_folder)) as store:
        add_segment(store)
        backup(store, copy, lambda _: None)
    vacuum(store_folder)
    with closing(open_for_reading(store_folder)):
        pass
    restore(copy, restored, lambda _: None)
    for folder in (store_folder, copy, restored):
        assert_private(folder)


@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading])
def test_files_with_wider_modes_are_made_private_and_that_is_logged_once(tmp_path, open_store):
    folder = tmp_path / "store"
    with closing(open_for_writing(folder)) as store:
        add_segment(store)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with capture_logs() as logs, closing(open_store(folder)):
        assert_private(folder)
    (line,) = logs
    assert (line["event"], line["files"]) == ("files_made_private", 11)
    with capture_logs() as logs, closing(open_store(folder)):
        pass
    assert logs == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_root_folder_of_a_volume_may_belong_to_another_user():
    """With Kubernetes' `fsGroup`, root owns the folder, and the process's group may write to it."""
    with tempfile.TemporaryDirectory() as name, root_again():
        folder = Path(name)
        os.chown(folder, 0, NOBODY)
        folder.chmod(0o2775)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        with capture_logs() as logs, closing(open_for_writing(folder)) as store:
            add_segment(store)
        assert [line["event"] for line in logs] == ["segment_published"]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o2775
        for path in folder.iterdir():
            assert not path.stat().st_mode & 0o077, path


@contextmanager
def root_again() -> Iterator[None]:
    """Makes the process run as root again at the end."""
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_a_file_that_cannot_be_made_private_is_named(tmp_path, monkeypatch):
    folder = tmp_path / "store"
    open_for_writing(folder).close()
    data = folder / "data.mdb"
    data.chmod(0o644)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with capture_logs() as logs:
        privacy.make_private(folder)
    (line,) = logs
    assert line["event"] == "files_not_private"
    assert line["log_level"] == "warning"
    assert line["problem"].startswith(f"{data} can be used by others")
    assert str(folder) in line["remedy"]
