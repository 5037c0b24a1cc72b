"""Which processes may have a store open together."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hrag.engine.embedded.store import store_locks
from hrag.errors import StoreUnavailable
from tests.support.servers.forked import talking


def nothing() -> None:
    pass


@contextmanager
def member(folder: Path, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody of a PID namespace who has the store, in this process."""
    with monkeypatch.context() as patch:
        patch.setattr(store_locks, "_namespace", namespace.encode)
        file = store_locks.join(folder, nothing)
    with file:
        yield


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who have to wait for another give up soon."""
    monkeypatch.setattr(store_locks, "_TRIES", 3)
    monkeypatch.setattr(store_locks, "_PAUSE_S", 0.001)


def test_processes_of_one_namespace_share_a_store(tmp_path, monkeypatch):
    with member(tmp_path, "pid:[1]", monkeypatch), member(tmp_path, "pid:[1]", monkeypatch):
        assert (tmp_path / "users.lock").read_bytes() == b"pid:[1]"


@pytest.mark.usefixtures("impatient")
def test_a_process_of_another_namespace_is_refused_and_told_what_to_do(tmp_path, monkeypatch):
    with member(tmp_path, "pid:[1]", monkeypatch):
        with pytest.raises(StoreUnavailable) as refused, member(tmp_path, "pid:[2]", monkeypatch):
            pass
        assert (tmp_path / "users.lock").read_bytes() == b"pid:[1]"
    message = refused.value.message
    assert f"the store in {tmp_path} is in use from another PID namespace" in message
    assert 'pid: "service:indexer"' in message
    assert "shareProcessNamespace: true" in message


def test_a_store_that_nobody_has_goes_to_the_next_namespace(tmp_path, monkeypatch):
    for name in ("pid:[4026531836]", "pid:[2]", "pid:[4026531836]"):
        with member(tmp_path, name, monkeypatch):
            assert (tmp_path / "users.lock").read_text() == name


@pytest.mark.usefixtures("impatient")
def test_the_name_stands_until_the_last_one_has_left(tmp_path, monkeypatch):
    with ExitStack() as last:
        with member(tmp_path, "pid:[1]", monkeypatch):
            last.enter_context(member(tmp_path, "pid:[1]", monkeypatch))
        with pytest.raises(StoreUnavailable), member(tmp_path, "pid:[2]", monkeypatch):
            pass


def test_where_namespaces_cannot_be_known_nobody_is_refused(tmp_path, monkeypatch):
    with member(tmp_path, "pid:[1]", monkeypatch), member(tmp_path, "", monkeypatch):
        pass
    with member(tmp_path, "", monkeypatch), member(tmp_path, "pid:[1]", monkeypatch):
        assert (tmp_path / "users.lock").read_bytes() == b""


def test_only_who_is_alone_is_told_so(tmp_path):
    calls: list[str] = []
    with (
        store_locks.join(tmp_path, lambda: calls.append("first")),
        store_locks.join(tmp_path, lambda: calls.append("second")),
    ):
        assert calls == ["first"]


@pytest.mark.usefixtures("impatient")
def test_an_exclusive_user_keeps_everybody_out_and_lets_them_in_again(tmp_path):
    with store_locks.exclusive(tmp_path):
        with pytest.raises(StoreUnavailable, match="is being vacuumed or restored"):
            store_locks.join(tmp_path, nothing)
        with pytest.raises(StoreUnavailable, match="in use"), store_locks.exclusive(tmp_path):
            pass
    store_locks.join(tmp_path, nothing).close()


@pytest.mark.usefixtures("impatient")
def test_a_store_in_use_cannot_be_had_alone(tmp_path):
    with (
        store_locks.join(tmp_path, nothing),
        pytest.raises(StoreUnavailable, match="in use by a running service; stop both services"),
        store_locks.exclusive(tmp_path),
    ):
        pass
    with store_locks.exclusive(tmp_path):
        pass


def test_a_process_that_is_killed_has_the_store_no_more(tmp_path):
    script = (
        "import sys, pathlib, time; from hrag.engine.embedded.store import store_locks\n"
        "file = store_locks.join(pathlib.Path(sys.argv[1]), lambda: None)\n"
        "print('in', flush=True); time.sleep(60)"
    )
    with talking("-c", script, str(tmp_path)) as (process, said):
        assert said.readline() == "in\n"
        process.kill()
        process.wait()
        with store_locks.exclusive(tmp_path):
            pass


# Comes and goes, and leaves a mark while inside; says so if it meets a mark of the others.
_COMER = """
import os, pathlib, sys, time
from hrag.engine.embedded.store import store_locks
from hrag.errors import StoreUnavailable
from tests.support.servers.forked import talking
folder, ours, theirs = pathlib.Path(sys.argv[1]), *sys.argv[2:]
store_locks._namespace = ours.encode
store_locks._TRIES, store_locks._PAUSE_S = 4, 0.0002
mark = folder / f"{ours}-{os.getpid()}"
until = time.monotonic() + 1
entered = 0
while time.monotonic() < until:
    try:
        with store_locks.join(folder, lambda: None):
            mark.touch()
            entered += 1
            if list(folder.glob(f"{theirs}-*")):
                print("met", flush=True)
            mark.unlink()
    except StoreUnavailable:
        pass
print(entered)
"""


def test_two_namespaces_never_have_a_store_together(tmp_path):
    """Three processes of each come and go as fast as they can."""
    with ExitStack() as all_of_them:
        names = [("a", "b"), ("b", "a")] * 3
        comers = [
            all_of_them.enter_context(talking("-c", _COMER, str(tmp_path), *pair)) for pair in names
        ]
        said = [output.read().split() for _, output in comers]
    assert all(len(each) == 1 for each in said), said
    entered = [sum(int(each[0]) for each in said[side::2]) for side in (0, 1)]
    assert min(entered) > 10, entered
