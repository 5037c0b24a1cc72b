"""Files that services write are private, and files that they read cannot stop them."""

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER
from hrag.client import Client
from hrag.errors import Unauthenticated
from hrag.server.auth import Role, api_keys
from hrag.types import Document
from tests.attacks.observed import health_s
from tests.support.servers.credentials import id_of, new_key
from tests.support.servers.processes import FAST, Process, fresh, started
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


# The key file is replaced while a service runs.


def _replace_by_fifo(keys: Path) -> None:
    keys.unlink()
    os.mkfifo(keys)


def _open_to_everybody(keys: Path) -> None:
    keys.chmod(0o666)


@pytest.mark.parametrize("spoil", [_replace_by_fifo, _open_to_everybody])
def test_a_key_file_that_cannot_be_used_stops_neither_calls_nor_health(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """The last valid keys stay in use until the file is valid. A FIFO blocks its opener."""
    keys = tmp_path / "keys.json"
    key = new_key(keys, role=Role.WRITE)
    settings = {**FAST, "HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(keys)}
    with (
        started(INDEXER, tmp_path / "store", settings) as indexer,
        Client(indexer.address, indexer.address, token=key) as client,
    ):
        indexer.wait_until_serving()
        good = keys.read_bytes()
        spoil(keys)
        until(lambda: _still_serves(indexer, client) and "reload_failed" in indexer.log)
        keys.unlink()
        keys.write_bytes(good)
        api_keys.revoke(keys, id_of(key))
        until(lambda: not _is_accepted(client))


def _still_serves(service: Process, client: Client) -> bool:
    """Checks that calls and health checks are answered; returns True."""
    assert health_s(service) < 10
    assert _is_accepted(client)
    return True


def _is_accepted(client: Client) -> bool:
    try:
        client.list_collections("acme")
    except Unauthenticated:
        return False
    return True


def test_a_service_does_not_start_with_a_key_file_that_everybody_may_change(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys.json"
    new_key(keys)
    keys.chmod(0o666)
    settings = {**FAST, "HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(keys)}
    service = Process(INDEXER, tmp_path / "store", settings)
    assert service.wait() == 2
    assert "has the mode 0666, so users other than its owner may change it" in service.log
    assert f"chmod go-w {keys}" in service.log


# The file system is mounted read-only.

_READ_ONLY = "mount --bind {0} {0} && mount -o remount,ro,bind {0} {0} && exec "


def _run_read_only(folder: Path, *command: str, **settings: str) -> str:
    """Runs a command that sees `folder` mounted read-only; returns what it writes.

    Skips the test if this machine does not let the user mount anything.
    """
    mount = _READ_ONLY.format(shlex.quote(str(folder)))
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*unshare, f"{mount} true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount file systems")
    done = subprocess.run(
        [*unshare, mount + shlex.join(command)],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
        timeout=60,
        check=False,
    )
    assert done.returncode
    return done.stdout + done.stderr


@pytest.mark.parametrize("exists", [True, False], ids=["store", "no store"])
def test_a_read_only_file_system_is_called_read_only(tmp_path: Path, exists: bool) -> None:
    """A message that tells root to run as the owner would be of no use."""
    data = tmp_path / "store"
    if exists:
        with started(INDEXER, data, FAST) as indexer:
            indexer.wait_until_serving()
    for service in ("indexer_svc", "retriever_svc")[: 2 if exists else 1]:
        command = sys.executable, "-m", service
        log = _run_read_only(tmp_path, *command, HRAG_DATA_DIR=str(data), HRAG_EMBEDDER="hash:8")
        assert "the file system is mounted read-only" in log
        assert "run as the owner" not in log
