"""A file is read again after a change. While it is invalid, its last valid value stays."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hrag.host.watched_file import WatchedFile


class Clock:
    """A fake clock in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _number(path: Path) -> int:
    return int(path.read_text("ascii"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "number"
    path.write_text("1", "ascii")
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watched(path: Path, clock: Clock) -> WatchedFile[int]:
    """A watched file, whose value is the number in the file: 1 at first."""
    return WatchedFile((path,), lambda: _number(path), clock)


def test_a_change_is_noticed_after_a_second_and_not_before(watched, path, clock):
    path.write_text("22", "ascii")
    assert watched() == 1
    clock.now += 1
    assert watched() == 22
    path.write_text("333", "ascii")
    clock.now += 0.5
    assert watched() == 22
    clock.now += 0.5
    assert watched() == 333


def test_a_change_during_the_first_read_is_noticed(path, clock):
    def read() -> int:
        value = _number(path)
        path.write_text("22", "ascii")
        return value

    watched = WatchedFile((path,), read, clock)
    assert watched() == 1
    clock.now += 1
    assert watched() == 22


def test_an_unchanged_file_is_not_reloaded(path, clock):
    reads = []
    watched = WatchedFile((path,), lambda: reads.append(1), clock)
    for _ in range(5):
        clock.now += 1
        watched()
    assert len(reads) == 1


def test_a_replacement_of_the_same_size_and_time_is_noticed(watched, path, clock):
    status = path.stat()
    replacement = path.with_name("other")
    replacement.write_text("2", "ascii")
    os.utime(replacement, ns=(status.st_atime_ns, status.st_mtime_ns))
    replacement.replace(path)
    clock.now += 1
    assert watched() == 2


def test_a_changed_symbolic_link_is_noticed(tmp_path, clock):
    """Kubernetes replaces mounted secrets in this way."""
    for name in ("1", "2"):
        (tmp_path / name).write_text(name, "ascii")
    link = tmp_path / "link"
    link.symlink_to("1")
    watched = WatchedFile((link,), lambda: _number(link), clock)
    link.unlink()
    link.symlink_to("2")
    clock.now += 1
    assert watched() == 2


@pytest.mark.parametrize("damage", ["damaged", "missing"])
def test_an_invalid_file_keeps_the_last_valid_value_and_is_logged_once(
    watched, path, clock, damage
):
    path.write_text("no number", "ascii")
    if damage == "missing":
        path.unlink()
    with capture_logs() as logs:
        for _ in range(3):
            clock.now += 1
            assert watched() == 1
    assert [(line["event"], line["log_level"]) for line in logs] == [("reload_failed", "error")]
    assert str(path) in logs[0]["files"]
    path.write_text("4", "ascii")
    clock.now += 1
    assert watched() == 4


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(path, clock):
    """The file itself does not change. For example, the process had no free file descriptor."""
    problems = iter([None, OSError("too many open files"), None])

    def read() -> int:
        problem = next(problems)
        if problem:
            raise problem
        return _number(path)

    watched = WatchedFile((path,), read, clock)
    path.write_text("22", "ascii")
    clock.now += 1
    assert watched() == 1
    clock.now += 1
    assert watched() == 22


def test_a_file_is_read_again_after_a_change_of_its_permissions(path, clock):
    reads = []
    watched = WatchedFile((path,), lambda: reads.append(1), clock)
    path.chmod(0o600)
    clock.now += 1
    watched()
    assert len(reads) == 2


def test_a_file_that_is_invalid_at_its_first_read_raises_an_error(path, clock):
    path.write_text("no number", "ascii")
    with pytest.raises(ValueError, match="no number"):
        WatchedFile((path,), lambda: _number(path), clock)
