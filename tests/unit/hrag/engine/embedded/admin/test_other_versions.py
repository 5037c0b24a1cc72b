"""A store of another schema version is refused by every command, and no byte of it changes."""

import json
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from hrag.config import EngineSettings
from hrag.engine.embedded.admin import backup
from hrag.engine.embedded.engine import EmbeddedEngine
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.store.schema_upgrade import UPGRADED_VERSION
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.engine.protocols import Administration
from hrag.errors import StoreUnavailable
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences

VERSIONS = (UPGRADED_VERSION - 1, schema.SCHEMA_VERSION + 1)
COMMANDS: dict[str, Callable[[Administration, Path], object]] = {
    "check": lambda admin, _: admin.check(),
    "repair": lambda admin, _: admin.repair(),
    "backup": lambda admin, folder: admin.backup(folder / "copy", lambda _: None),
    "vacuum": lambda admin, _: admin.vacuum(),
    "reindex": lambda admin, _: list(admin.reindex()),
}


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    """The folder of a store with a segment, a tail and a tombstone."""
    folder = tmp_path / "store"
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        collection = writer.open("t", "c")
        for number in range(3):
            writer.put(collection, prepared(f"d{number}", sentences(30), seed=number))
            if number == 1:
                seal(store, 1)
        writer.delete(collection, "d0")
    return folder


def _set_version(folder: Path, version: int) -> None:
    with closing(open_for_writing(folder)) as store, store.write() as txn:
        txn.put_number(schema.SCHEMA, version)


def _files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Returns the mode and the content of each file that has data of the store."""
    files = [folder / "data.mdb", *(path for path in folder.rglob("*/*") if path.is_file())]
    return {str(path): (path.stat().st_mode, path.read_bytes()) for path in files}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_store_of_another_version(
    store_dir: Path, tmp_path: Path, version: int, command: str
) -> None:
    _set_version(store_dir, version)
    before = _files(store_dir)
    assert len(before) > 1
    settings = EngineSettings(HRAG_DATA_DIR=store_dir)
    with pytest.raises(StoreUnavailable) as refused:
        COMMANDS[command](EmbeddedEngine(settings).administration(), tmp_path)
    assert f"has schema version {version}; this version of hrag reads only" in str(refused.value)
    assert "use the version of hrag that wrote the store" in str(refused.value)
    assert _files(store_dir) == before
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_backup_of_another_version_is_not_restored(
    store_dir: Path, tmp_path: Path, version: int
) -> None:
    copy, restored = tmp_path / "copy", tmp_path / "restored"
    settings = EngineSettings(HRAG_DATA_DIR=store_dir)
    EmbeddedEngine(settings).administration().backup(copy, lambda _: None)
    _set_version(copy, version)
    label = json.loads((copy / "backup.json").read_text())
    label["data_sha256"] = sha256((copy / "data.mdb").read_bytes()).hexdigest()
    (copy / "backup.json").write_text(json.dumps(label))
    before = _files(copy)
    with pytest.raises(StoreUnavailable, match=f"has schema version {version}; this version"):
        backup.restore(copy, restored, lambda _: None)
    assert _files(copy) == before
    assert not (restored / "data.mdb").exists()
