"""Only their owner may read the files that services and commands write."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER
from hrag.client import Client
from hrag.types import Document
from tests.support.servers.processes import FAST, fresh, started
from tests.support.servers.stores import check_store
from tests.support.until import until

pytestmark = pytest.mark.attacks

_SEALING = {**FAST, "HRAG_SEGMENT_MIN_LEAVES": "64"}
_HRAG = [sys.executable, "-c", "from hrag.cli import main; main()"]
_TEXT = "The customer's account ends in 4711. " * 2000


@pytest.fixture
def _usual_umask() -> Iterator[None]:
    """Sets the umask 022, under which everybody can read an ordinary program's files."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def others_may_use(folder: Path) -> dict[str, str]:
    """Returns the mode of each path that users other than its owner may access.

    The paths are the folder and all that it contains.
    """
    return {
        str(path): oct(mode)
        for path in (folder, *folder.rglob("*"))
        if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077
    }


def hrag(*arguments: str | Path) -> None:
    done = subprocess.run(
        [*_HRAG, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# Services run in new interpreters, because the fork server does not have the umask of the test.


@pytest.mark.usefixtures("_usual_umask")
def test_only_the_owner_may_use_store_segments_and_backups(tmp_path: Path) -> None:
    data, backup, restored = (tmp_path / name for name in ("store", "backup", "restored"))
    with (
        started(INDEXER, data, _SEALING, start=fresh) as indexer,
        started(RETRIEVER, data, _SEALING, start=fresh) as retriever,
        Client(indexer.address, retriever.address) as client,
    ):
        indexer.wait_until_serving()
        retriever.wait_until_serving()
        client.ingest("acme", Document(_TEXT, "d"))
        until(lambda: bool(client.index_status("acme").embedded.segments))
        assert client.search("acme", "account").passages
        hrag("backup", backup, "--data-dir", data)
        assert others_may_use(data) == {}
    hrag("check", "--data-dir", data)
    hrag("vacuum", "--data-dir", data)
    hrag("restore", backup, "--data-dir", restored)
    for folder in (data, backup, restored):
        assert any(folder.glob("segments/*/*"))
        assert others_may_use(folder) == {}
        check_store(folder)


@pytest.mark.usefixtures("_usual_umask")
def test_a_store_that_everybody_can_read_is_made_private(tmp_path: Path) -> None:
    data = tmp_path / "store"
    with started(INDEXER, data, _SEALING, start=fresh) as indexer:
        indexer.wait_until_serving()
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with started(INDEXER, data, _SEALING, start=fresh) as indexer:
        indexer.wait_until_serving()
        assert others_may_use(data) == {}
        assert "files_made_private" in indexer.log
