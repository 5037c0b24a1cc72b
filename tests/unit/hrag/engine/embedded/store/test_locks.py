"""Tests of which processes may have a store open at the same time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hrag.engine.embedded.store import store_locks
from hrag.engine.embedded.store.store_locks import Patience
from hrag.errors import StoreUnavailable
from tests.support.servers.forked import program_with_output


def do_nothing() -> None:
    pass


# With this patience, a process gives up soon if it cannot get the lock.
IMPATIENT = Patience(tries=3, pause_s=0.001)


@contextmanager
def joined(folder: Path, namespace: str) -> Iterator[None]:
    """Opens the store in this process, as if its PID namespace had this name."""
    with store_locks.join(folder, do_nothing, namespace.encode(), IMPATIENT):
        yield


def test_processes_of_one_namespace_share_a_store(tmp_path):
    with joined(tmp_path, "pid:[1]"), joined(tmp_path, "pid:[1]"):
        assert (tmp_path / "users.lock").read_bytes() == b"pid:[1]"


def test_a_process_of_another_namespace_is_refused_and_told_what_to_do(tmp_path):
    with joined(tmp_path, "pid:[1]"):
        with pytest.raises(StoreUnavailable) as refused, joined(tmp_path, "pid:[2]"):
            pass
        assert (tmp_path / "users.lock").read_bytes() == b"pid:[1]"
    message = refused.value.message
    assert f"the store in {tmp_path} is in use from another PID namespace" in message
    assert 'pid: "service:indexer"' in message
    assert "shareProcessNamespace: true" in message


def test_a_store_that_no_process_has_open_can_be_joined_from_another_namespace(tmp_path):
    for name in ("pid:[4026531836]", "pid:[2]", "pid:[4026531836]"):
        with joined(tmp_path, name):
            assert (tmp_path / "users.lock").read_text() == name


def test_the_namespace_is_kept_until_the_last_process_has_left(tmp_path):
    with ExitStack() as last:
        with joined(tmp_path, "pid:[1]"):
            last.enter_context(joined(tmp_path, "pid:[1]"))
        with pytest.raises(StoreUnavailable), joined(tmp_path, "pid:[2]"):
            pass


def test_no_process_is_refused_if_one_of_the_namespaces_is_unknown(tmp_path):
    with joined(tmp_path, "pid:[1]"), joined(tmp_path, ""):
        pass
    with joined(tmp_path, ""), joined(tmp_path, "pid:[1]"):
        assert (tmp_path / "users.lock").read_bytes() == b""


def test_the_callback_is_called_only_if_no_other_process_has_the_store_open(tmp_path):
    calls: list[str] = []
    with (
        store_locks.join(tmp_path, lambda: calls.append("first")),
        store_locks.join(tmp_path, lambda: calls.append("second")),
    ):
        assert calls == ["first"]


def test_exclusive_use_keeps_all_others_out_until_it_ends(tmp_path):
    with store_locks.exclusive(tmp_path):
        with pytest.raises(StoreUnavailable, match="is being vacuumed or restored"):
            store_locks.join(tmp_path, do_nothing, patience=IMPATIENT)
        with (
            pytest.raises(StoreUnavailable, match="in use"),
            store_locks.exclusive(tmp_path, IMPATIENT),
        ):
            pass
    store_locks.join(tmp_path, do_nothing).close()


def test_a_store_in_use_cannot_be_used_exclusively(tmp_path):
    with (
        store_locks.join(tmp_path, do_nothing),
        pytest.raises(StoreUnavailable, match="in use by a running service; stop the indexer"),
        store_locks.exclusive(tmp_path, IMPATIENT),
    ):
        pass
    with store_locks.exclusive(tmp_path):
        pass


def test_a_killed_process_no_longer_has_the_store(tmp_path):
    script = (
        "import sys, pathlib, signal; from hrag.engine.embedded.store import store_locks\n"
        "file = store_locks.join(pathlib.Path(sys.argv[1]), lambda: None)\n"
        "print('in', flush=True); signal.pause()"
    )
    with program_with_output("-c", script, str(tmp_path)) as (process, said):
        assert said.readline() == "in\n"
        process.kill()
        process.wait()
        with store_locks.exclusive(tmp_path):
            pass


# Joins and leaves the store again and again for a second, and at least ten times, because a busy
# machine may stop for a second. While this process has the store open, a file exists as its mark.
# It prints "met" if it finds a mark of the other namespace then.
_JOINER = """
import os, pathlib, sys, time
from hrag.engine.embedded.store import store_locks
from hrag.errors import StoreUnavailable
from tests.support.servers.forked import program_with_output
folder, ours, theirs = pathlib.Path(sys.argv[1]), *sys.argv[2:]
patience = store_locks.Patience(tries=4, pause_s=0.0002)
mark = folder / f"{ours}-{os.getpid()}"
until = time.monotonic() + 1
entered = 0
while time.monotonic() < until or entered < 10:
    try:
        with store_locks.join(folder, lambda: None, ours.encode(), patience):
            mark.touch()
            entered += 1
            if list(folder.glob(f"{theirs}-*")):
                print("met", flush=True)
            mark.unlink()
    except StoreUnavailable:
        pass
print(entered)
"""


def test_two_namespaces_never_have_a_store_open_at_the_same_time(tmp_path):
    """Three processes of each namespace join and leave the store as fast as they can."""
    with ExitStack() as all_of_them:
        names = [("a", "b"), ("b", "a")] * 3
        joiners = [
            all_of_them.enter_context(program_with_output("-c", _JOINER, str(tmp_path), *pair))
            for pair in names
        ]
        said = [output.read().split() for _, output in joiners]
    assert all(len(each) == 1 for each in said), said
    entered = [sum(int(each[0]) for each in said[side::2]) for side in (0, 1)]
    assert min(entered) > 10, entered
