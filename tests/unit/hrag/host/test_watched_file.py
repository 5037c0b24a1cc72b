"""A file is read again after a change. While it is invalid, its last valid value stays."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hrag.host import watched_file
from hrag.host.watched_file import WatchedFile, failing_settings
from tests.support.until import until

SETTING = "HRAG_TEST_FILE"


def _number(contents: Sequence[bytes]) -> int:
    return int(contents[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "number"
    path.write_text("1", "ascii")
    return path


@pytest.fixture(autouse=True)
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the threads of watched files check nothing, so that only the tests check files."""
    monkeypatch.setattr(watched_file, "_watch", lambda _: None)


@pytest.fixture
def watched(path: Path) -> WatchedFile[int]:
    """A watched file, whose value is the number in the file: 1 at first."""
    return WatchedFile(SETTING, (path,), _number)


def test_a_change_is_noticed_at_the_next_check(watched, path):
    path.write_text("22", "ascii")
    assert watched() == 1
    watched.check()
    assert watched() == 22


def test_a_change_is_noticed_without_a_call(path, monkeypatch):
    """A thread checks the file. Nobody asks for the value meanwhile."""
    monkeypatch.undo()
    watched = WatchedFile(SETTING, (path,), _number)
    path.write_text("22", "ascii")
    until(lambda: watched._value == 22)


def test_the_thread_ends_with_its_object(path, monkeypatch):
    monkeypatch.undo()
    before = set(threading.enumerate())
    watched = WatchedFile(SETTING, (path,), _number)
    started = set(threading.enumerate()) - before
    assert started
    del watched
    until(lambda: not any(thread.is_alive() for thread in started))


def test_a_change_during_the_first_read_is_noticed(path):
    def read(contents: Sequence[bytes]) -> int:
        path.write_text("22", "ascii")
        return _number(contents)

    watched = WatchedFile(SETTING, (path,), read)
    assert watched() == 1
    watched.check()
    assert watched() == 22


def test_an_unchanged_file_is_not_reloaded(path):
    reads = []
    watched = WatchedFile(SETTING, (path,), lambda contents: reads.append(contents) or len(reads))
    for _ in range(5):
        watched.check()
    assert len(reads) == 1


def test_a_replacement_of_the_same_size_and_time_is_noticed(watched, path):
    status = path.stat()
    replacement = path.with_name("other")
    replacement.write_text("2", "ascii")
    os.utime(replacement, ns=(status.st_atime_ns, status.st_mtime_ns))
    replacement.replace(path)
    watched.check()
    assert watched() == 2


def test_a_changed_symbolic_link_is_noticed(tmp_path):
    """Kubernetes replaces mounted secrets in this way."""
    for name in ("1", "2"):
        (tmp_path / name).write_text(name, "ascii")
    link = tmp_path / "link"
    link.symlink_to("1")
    watched = WatchedFile(SETTING, (link,), _number)
    link.unlink()
    link.symlink_to("2")
    watched.check()
    assert watched() == 2


def _damage(path: Path) -> None:
    path.write_text("no number", "ascii")


def _make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link_to_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _open_to_everybody(path: Path) -> None:
    path.chmod(0o666)


def _repair(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_text("4", "ascii")


PROBLEMS = {
    _damage: "invalid literal",
    Path.unlink: "No such file",
    _make_fifo: "is not a regular file",
    _make_folder: "Is a directory",
    _link_to_device: "is not a regular file",
    _open_to_everybody: "has the mode 0666",
}


@pytest.mark.parametrize("spoil", PROBLEMS)
def test_an_unusable_file_keeps_the_last_valid_value_and_is_logged_once(
    watched: WatchedFile[int], path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(path)
    with capture_logs() as logs:
        for _ in range(3):
            watched.check()
            assert watched() == 1
    assert [(line["event"], line["log_level"]) for line in logs] == [("reload_failed", "error")]
    assert str(path) in logs[0]["files"]
    assert PROBLEMS[spoil] in logs[0]["problem"]
    assert failing_settings()[SETTING]
    _repair(path)
    watched.check()
    assert watched() == 4
    assert not watched.is_failing


@pytest.mark.parametrize("spoil", PROBLEMS)
def test_an_unusable_file_is_refused_at_its_first_read(
    path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(path)
    with pytest.raises((OSError, ValueError), match=PROBLEMS[spoil]):
        WatchedFile(SETTING, (path,), _number)


@pytest.mark.parametrize(("mode", "is_accepted"), [(0o600, 1), (0o644, 1), (0o620, 0), (0o602, 0)])
def test_only_the_owner_may_be_able_to_write(path: Path, mode: int, is_accepted: int) -> None:
    """The refusal names the mode and the command that corrects it."""
    path.chmod(mode)
    if is_accepted:
        assert WatchedFile(SETTING, (path,), _number)() == 1
    else:
        with pytest.raises(ValueError, match=f"the mode {mode:04o}.*chmod go-w {path}"):
            WatchedFile(SETTING, (path,), _number)


def test_a_file_that_is_too_large_is_refused(watched, path, monkeypatch):
    monkeypatch.setattr("hrag.host.operator_files.MAX_FILE_BYTES", 3)
    path.write_text("1234", "ascii")
    with capture_logs() as logs:
        watched.check()
    assert "more than the allowed 3 bytes" in logs[0]["problem"]
    path.write_text("123", "ascii")
    watched.check()
    assert watched() == 123


class Hang:
    """Makes reads of a file wait until the test sets `answering`, as on a mount that is lost.

    `reads` counts the reads that had to wait.
    """

    def __init__(self, path: Path) -> None:
        self.answering = threading.Event()
        self.reads = 0
        self._path = path
        self._read = watched_file.read_operator_file

    def read(self, path: Path) -> bytes:
        """Stands in for `read_operator_file`."""
        if path == self._path and not self.answering.is_set():
            self.reads += 1
            self.answering.wait(60)
        return self._read(path)


@pytest.fixture
def hang(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    hang = Hang(path)
    monkeypatch.setattr(watched_file, "read_operator_file", hang.read)
    yield hang
    hang.answering.set()


def test_a_file_system_that_does_not_answer_keeps_the_last_value(path, hang, monkeypatch):
    """Each check ends, no check starts a second thread, and the value follows after the answer."""
    hang.answering.set()
    watched = WatchedFile(SETTING, (path,), _number)
    hang.answering.clear()
    monkeypatch.setattr(watched_file, "READ_LIMIT_S", 0.05)
    path.write_text("22", "ascii")
    with capture_logs() as logs:
        for _ in range(3):
            watched.check()
            assert watched() == 1
        until(lambda: hang.reads)
        assert hang.reads == 1
    # Other files are watched by what other tests have left.
    (line,) = (line for line in logs if line.get("files") == str(path))
    assert line["event"] == "reload_failed"
    assert "the file system does not answer" in line["problem"]
    assert watched.is_failing
    hang.answering.set()

    def has_loaded() -> bool:
        watched.check()
        return watched() == 22

    until(has_loaded)
    assert not watched.is_failing


def test_a_file_system_that_does_not_answer_prevents_the_start_in_time(path, hang, monkeypatch):
    monkeypatch.setattr(watched_file, "READ_LIMIT_S", 0.05)
    began = time.monotonic()
    with pytest.raises(OSError, match="could not be read within"):
        WatchedFile(SETTING, (path,), _number)
    assert time.monotonic() - began < 30


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(path):
    """The file itself does not change. For example, the process had no free file descriptor."""
    problems = iter([None, OSError("too many open files"), None])

    def read(contents: Sequence[bytes]) -> int:
        problem = next(problems)
        if problem:
            raise problem
        return _number(contents)

    watched = WatchedFile(SETTING, (path,), read)
    path.write_text("22", "ascii")
    watched.check()
    assert watched() == 1
    watched.check()
    assert watched() == 22


def test_a_defect_of_the_parser_does_not_end_the_checks(path):
    def read(contents: Sequence[bytes]) -> int:
        number = _number(contents)
        if number == 2:
            raise KeyError("a defect")
        return number

    watched = WatchedFile(SETTING, (path,), read)
    for text, expected in (("2", 1), ("3", 3)):
        path.write_text(text, "ascii")
        watched.check()
        assert watched() == expected


def test_a_file_is_read_again_after_a_change_of_its_permissions(path):
    reads = []
    watched = WatchedFile(SETTING, (path,), lambda contents: reads.append(contents) or len(reads))
    path.chmod(0o600)
    watched.check()
    assert len(reads) == 2
