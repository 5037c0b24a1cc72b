"""A store may be moved to another folder and to another machine: nothing in it names either."""

import shutil
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hrag.config import EngineSettings
from hrag.engine.embedded.engine import EmbeddedEngine
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import location
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag_fast._graph import Graph
from hrag_fast._sentence_encoder import supported_paths
from tests.support.documents.fakes import (
    collection_settings,
    prepared,
    query_vector,
    seal,
    search_leaves,
    sentences,
)

_FOLDER = "the-folder-of-the-first-machine"
_QUERIES = [query_vector(seed) for seed in range(5)]


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    """The folder of a store with two segments and a tail."""
    folder = tmp_path / _FOLDER / "store"
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        collection = writer.open("t", "c")
        for number in range(5):
            writer.put(collection, prepared(f"d{number}", sentences(40), seed=number))
            if number in {1, 3}:
                seal(store, 1)
    return folder


def _found(folder: Path) -> list[dict[object, float]]:
    """Checks the store in `folder`, and returns what searches in it find."""
    with closing(EmbeddedEngine(EngineSettings(HRAG_DATA_DIR=folder))) as engine:
        engine.writer()
        assert engine.administration().check().problems == ()
        with engine.reader().snapshot("t", "c") as snapshot:
            return [search_leaves(snapshot, query, 20) for query in _QUERIES]


def _move(store_dir: Path, target: Path) -> None:
    """Moves a store as a copy to another machine does. Services there are other processes."""
    shutil.copytree(store_dir, target)
    shutil.rmtree(store_dir.parent)
    (target / location.USERS_LOCK).write_bytes(b"pid:[4026539999]")


@pytest.mark.parametrize("path", supported_paths())
def test_a_moved_store_finds_the_same_on_every_kind_of_processor(
    store_dir: Path, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path, which is the kind of kernels, is chosen when a segment is loaded."""
    before = _found(store_dir)
    _move(store_dir, tmp_path / "moved")
    loaded = []

    def load(blocks: Any, **options: Any) -> Graph:
        loaded.append(path)
        return Graph(blocks, path, **options)

    monkeypatch.setattr(segment_files, "Graph", load)
    after = _found(tmp_path / "moved")
    assert loaded
    for leaves, expected in zip(after, before, strict=True):
        assert leaves.keys() == expected.keys()
        assert leaves == pytest.approx(expected, abs=1e-5)


def test_a_store_contains_neither_a_path_nor_the_name_of_its_machine(store_dir: Path) -> None:
    _found(store_dir)
    machine = Path("/etc/machine-id")
    ids = {machine.read_text("ascii").strip()} if machine.exists() else set()
    names = {_FOLDER, str(store_dir), socket.gethostname(), *ids} - {""}
    for file in filter(Path.is_file, store_dir.rglob("*")):
        content = file.read_bytes()
        # A name of two letters could occur by chance.
        assert not [name for name in names if len(name) > 4 and name.encode() in content], file
