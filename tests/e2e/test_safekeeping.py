"""The commands backup, restore, check, vacuum and reindex work, or refuse to run with a reason.

Backup and check work while services run. Vacuum requires that both services are stopped, reindex
that the indexer is stopped, and restore that the target folder has no store.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hrag.cli.terminal import ExitCode
from hrag.client import Client
from hrag.types import Document
from tests.crash.damage import lose_a_text
from tests.crash.disks import MIB, Ballast, small_disk
from tests.support.servers.forked import HRAG, ran
from tests.support.servers.processes import FAST, Running, running
from tests.support.servers.stores import check_store
from tests.support.until import until

pytestmark = pytest.mark.embedded_only("PostgreSQL has programs for these tasks")

_SEALS = {**FAST, "HRAG_SEGMENT_MIN_LEAVES": "64"}
_ENV = {"NO_COLOR": "1", "COLUMNS": "200", "HRAG_SEGMENT_MIN_LEAVES": "64"}


def hrag(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return ran(*HRAG, *map(str, arguments), environment={**os.environ, **_ENV})


MISSING = ExitCode.NOT_FOUND
NOT_USABLE = ExitCode.UNAVAILABLE


def succeeds(*arguments: str | Path) -> str:
    done = hrag(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fails(*arguments: str | Path, code: int = 1) -> str:
    """Runs a command that must fail; returns its error, which must be one line.

    Commands that change the store also write a line of the audit log to standard error.
    """
    done = hrag(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    *audited, why = done.stderr.splitlines()
    assert len(audited) <= 1
    assert all("audit" in line and "outcome=FAILED" in line for line in audited)
    assert why.startswith("error: ")
    return f"{why}\n"


def text(number: int, version: int = 0) -> str:
    return "".join(f"Text {number}.{version} says sentence {sentence}. " for sentence in range(60))


class BackgroundWriter:
    """Ingests, updates and deletes documents in a thread until its `with` block ends.

    `stored` has the texts of the documents that are never updated or deleted.
    """

    def __init__(self, client: Client) -> None:
        self.stored: dict[str, str] = {}
        self._client = client
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failures: list[Exception] = []

    def _run(self) -> None:
        try:
            for number in range(100_000):
                if self._stopping.is_set():
                    return
                self._step(number)
        except Exception as error:
            self._failures.append(error)

    def _step(self, number: int) -> None:
        """Ingests a new document, replaces another document and sometimes deletes the latter."""
        new, changed = f"d{number}", f"changing{number % 7}"
        self._client.ingest("t", Document(text(number), new))
        self.stored[new] = text(number)
        self._client.ingest("t", Document(text(number, 1), changed))
        if number % 5 == 0:
            self._client.delete_document("t", changed)

    def __enter__(self) -> "BackgroundWriter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._failures == []


@pytest.fixture
def loaded(data_dir: Path) -> Iterator[Running]:
    """Services with a segment and a tail. The test may stop the services."""
    with running(data_dir, _SEALS) as services:
        for number in range(12):
            services.client.ingest("t", Document(text(number), f"d{number}"))
        yield services


@pytest.fixture
def stopped(data_dir: Path) -> Path:
    """The store of stopped services, with a segment, a tail and many deleted documents."""
    with running(data_dir, _SEALS) as services:
        for number in range(60):
            services.client.ingest("t", Document(text(number), f"d{number}"))
        until(lambda: services.client.index_status("t").embedded.segments)
        for number in range(10, 60):
            services.client.delete_document("t", f"d{number}")
    return data_dir


def assert_has(data_dir: Path, stored: dict[str, str]) -> None:
    """Fails unless services on the store return every document exactly and store a new one."""
    with running(data_dir, _SEALS) as services:
        for name, expected in stored.items():
            assert services.client.get_text("t", name) == expected
            result = services.client.search("t", expected[:40], limit=3)
            assert result.passages
        services.client.ingest("t", Document("And it goes on.", "later"))
        assert services.client.get_text("t", "later") == "And it goes on."


# These tests back up and restore a store.


@pytest.mark.slow
def test_a_backup_during_writes_has_all_writes_acknowledged_before_it(
    loaded: Running, tmp_path: Path
) -> None:
    with closing(loaded.new_client()) as client, BackgroundWriter(client) as writing:
        until(lambda: len(writing.stored) >= 20)
        for name in ("first", "second"):
            before = dict(writing.stored)
            output = succeeds("backup", tmp_path / name, "--data-dir", loaded.data_dir)
            backed_up = r"^backed up [\d,]+ documents as of the store's sequence \d"
            assert re.search(backed_up, output, re.MULTILINE)
            assert not (tmp_path / f"{name}.partial").exists()
        during = len(writing.stored)
    assert during > len(before)
    restored = tmp_path / "restored"
    output = succeeds("restore", tmp_path / "second", "--data-dir", restored)
    assert "checking the copy" in output
    assert "the store is sound" in succeeds("check", "--data-dir", restored)
    assert_has(restored, before)


@pytest.mark.slow
def test_a_restore_refuses_a_folder_with_a_store(loaded: Running, tmp_path: Path) -> None:
    succeeds("backup", tmp_path / "b", "--data-dir", loaded.data_dir)
    output = fails("restore", tmp_path / "b", "--data-dir", loaded.data_dir, code=NOT_USABLE)
    assert f"the store in {loaded.data_dir} is in use by a running service" in output
    other = tmp_path / "other"
    succeeds("restore", tmp_path / "b", "--data-dir", other)
    output = fails("restore", tmp_path / "b", "--data-dir", other, code=ExitCode.USAGE)
    assert f"{other} holds a store" in output
    output = fails("restore", other, "--data-dir", tmp_path / "third")
    assert "is no backup" in output
    check_store(other)


@pytest.mark.slow
def test_a_full_disk_fails_only_the_backup(loaded: Running, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        ballast = Ballast(disk)
        ballast.fill(leave_bytes=60_000)
        target = disk / "b"
        output = fails("backup", target, "--data-dir", loaded.data_dir)
        assert f"the disk of {target}.partial is full" in output
        assert [path.name for path in disk.iterdir()] == ["ballast"]
        loaded.client.ingest("t", Document("Still here.", "later"))
        assert loaded.client.search("t", "Still here.").passages
        ballast.remove()
        succeeds("backup", target, "--data-dir", loaded.data_dir)
        assert_no_lock_files(target)
        shutil.rmtree(target)


def assert_no_lock_files(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"backup.json", "data.mdb", "segments"}


def test_a_backup_without_a_store_is_an_error_and_creates_no_file(tmp_path: Path) -> None:
    output = fails("backup", tmp_path / "b", "--data-dir", tmp_path / "none", code=MISSING)
    assert "holds no store" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_backup_has_a_file_that_describes_its_contents(stopped: Path, tmp_path: Path) -> None:
    succeeds("backup", tmp_path / "b", "--data-dir", stopped)
    label = json.loads((tmp_path / "b" / "backup.json").read_text())
    assert label["documents"] == 10
    assert label["data_bytes"] == (tmp_path / "b" / "data.mdb").stat().st_size


# These tests vacuum and reindex a store.


@pytest.mark.slow
def test_a_vacuum_is_refused_until_both_services_are_stopped(loaded: Running) -> None:
    output = fails("vacuum", "--data-dir", loaded.data_dir, code=NOT_USABLE)
    assert "in use by a running service; stop the indexer and the retriever first" in output
    loaded.indexer.stop()
    output = fails("vacuum", "--data-dir", loaded.data_dir, code=NOT_USABLE)
    assert "stop the indexer and the retriever first" in output
    loaded.retriever.stop()
    assert "vacuumed" in succeeds("vacuum", "--data-dir", loaded.data_dir)


@pytest.mark.slow
def test_a_vacuum_shrinks_the_file_after_deletions(stopped: Path) -> None:
    before = (stopped / "data.mdb").stat().st_size
    output = succeeds("vacuum", "--data-dir", stopped)
    after = (stopped / "data.mdb").stat().st_size
    assert f" to {after:,} bytes)" in output
    assert after < before / 2, "before the vacuum, the file also had the reserve for deletions"
    assert_has(stopped, {f"d{number}": text(number) for number in range(10)})


@pytest.mark.slow
def test_reindexing_restores_lost_segments(stopped: Path) -> None:
    for path in (stopped / "segments").iterdir():
        shutil.rmtree(path)
    checked = hrag("check", "--data-dir", stopped)
    assert checked.returncode == 1
    assert re.search(r"collection t/default: segment \d+: .*cannot be read", checked.stdout)
    output = succeeds("reindex", "--data-dir", stopped)
    assert re.search(r"^collection t/default: [1-9][\d,]* leaves indexed$", output, re.MULTILINE)
    assert "the store is sound" in succeeds("check", "--data-dir", stopped)
    assert_has(stopped, {f"d{number}": text(number) for number in range(10)})


@pytest.mark.slow
def test_reindexing_needs_a_stopped_indexer_but_not_a_stopped_retriever(loaded: Running) -> None:
    output = fails("reindex", "--data-dir", loaded.data_dir, code=NOT_USABLE)
    assert "another indexer has the store" in output
    assert "stop the other indexer first" in output
    loaded.indexer.stop()
    assert "leaves indexed" in succeeds("reindex", "--data-dir", loaded.data_dir)
    leaf = loaded.client.get_chunk("t", "d3#0.0").chunk
    result = loaded.client.search("t", leaf.content, limit=1)
    assert result.passages[0].chunk.document_id == "d3"


@pytest.mark.parametrize("command", ["reindex", "vacuum"])
def test_without_a_store_commands_create_no_file(tmp_path: Path, command: str) -> None:
    assert "holds no store" in fails(command, "--data-dir", tmp_path / "none", code=MISSING)
    assert list(tmp_path.iterdir()) == []


# This test checks sound and damaged stores.


def test_the_exit_code_of_check_differs_for_sound_and_damaged_stores(
    stopped: Path, tmp_path: Path
) -> None:
    assert "the store is sound" in succeeds("check", "--data-dir", stopped)
    assert "holds no store" in fails("check", "--data-dir", tmp_path / "none", code=2)
    lose_a_text(stopped)
    checked = hrag("check", "--data-dir", stopped)
    assert checked.returncode == 1
    assert "collection t/default: document d0 (ordinal 1): text, tree or vectors" in checked.stdout
    os.truncate(stopped / "data.mdb", 20_000)
    assert "data.mdb is damaged" in fails("check", "--data-dir", stopped, code=2)


# This test runs a command in another PID namespace.


@contextmanager
def _new_pid_namespace() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Yields a function that runs a command in a new PID namespace.

    Skips the test if this machine cannot create a PID namespace.
    """
    before = ("unshare", "--pid", "--fork", "--kill-child")
    if shutil.which("unshare") is None:
        pytest.skip("there is no program unshare")
    tried = subprocess.run([*before, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"cannot make a PID namespace: {tried.stderr.strip()}")

    def run_in_namespace(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*before, sys.executable, *HRAG, *map(str, arguments)],
            env={**os.environ, **_ENV},
            check=False,
            capture_output=True,
            text=True,
            timeout=90,
        )

    yield run_in_namespace


@pytest.mark.slow
def test_a_process_in_another_pid_namespace_is_refused_with_advice(loaded: Running) -> None:
    with _new_pid_namespace() as run_in_namespace:
        done = run_in_namespace("check", "--data-dir", loaded.data_dir)
        assert done.returncode == 2
        assert "in use from another PID namespace" in done.stderr
        assert "shareProcessNamespace" in done.stderr
        assert "the store is sound" in succeeds("check", "--data-dir", loaded.data_dir)
        loaded.client.ingest("t", Document("Still here.", "later"))
        loaded.indexer.stop()
        loaded.retriever.stop()
        done = run_in_namespace("check", "--data-dir", loaded.data_dir)
        assert done.returncode == 0, done.stderr
