"""Which processes may have a store open together."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hrag.engine.embedded.store import store_locks
from hrag.engine.embedded.store.store_locks import Patience
from hrag.errors import StoreUnavailable
from tests.support.servers.forked import program_with_output


def nothing() -> None:
    pass


# A process that has to wait for another one gives up soon.
IMPATIENT = Patience(tries=3, pause_s=0.001)


@contextmanager
def member(folder: Path, namespace: str) -> Iterator[None]:
    """A user of the store in a PID namespace of this name; it is this process."""
    with store_locks.join(folder, nothing, namespace.encode(), IMPATIENT):
        yield


def test_processes_of_one_namespace_share_a_store(tmp_path):
    with member(tmp_path, "pid:[1]"), member(tmp_path, "pid:[1]"):
        assert (tmp_path / "users.lock").read_bytes() == b"pid:[1]"


def test_a_process_of_another_namespace_is_refused_and_told_what_to_do(tmp_path):
    with member(tmp_path, "pid:[1]"):
        with pytest.raises(StoreUnavailable) as refused, member(tmp_path, "pid:[2]"):
            pass
        assert (tmp_path / "users.lock").read_bytes() == b"pid:[1]"
    message = refused.value.message
    assert f"the store in {tmp_path} is in use from another PID namespace" in message
    assert 'pid: "service:indexer"' in message
    assert "shareProcessNamespace: true" in message


def test_a_store_that_nobody_has_goes_to_the_next_namespace(tmp_path):
    for name in ("pid:[4026531836]", "pid:[2]", "pid:[4026531836]"):
        with member(tmp_path, name):
            assert (tmp_path / "users.lock").read_text() == name


def test_the_name_stands_until_the_last_one_has_left(tmp_path):
    with ExitStack() as last:
        with member(tmp_path, "pid:[1]"):
            last.enter_context(member(tmp_path, "pid:[1]"))
        with pytest.raises(StoreUnavailable), member(tmp_path, "pid:[2]"):
            pass


def test_where_namespaces_cannot_be_known_nobody_is_refused(tmp_path):
    with member(tmp_path, "pid:[1]"), member(tmp_path, ""):
        pass
    with member(tmp_path, ""), member(tmp_path, "pid:[1]"):
        assert (tmp_path / "users.lock").read_bytes() == b""


def test_only_who_is_alone_is_told_so(tmp_path):
    calls: list[str] = []
    with (
        store_locks.join(tmp_path, lambda: calls.append("first")),
        store_locks.join(tmp_path, lambda: calls.append("second")),
    ):
        assert calls == ["first"]


def test_an_exclusive_user_keeps_everybody_out_and_lets_them_in_again(tmp_path):
    with store_locks.exclusive(tmp_path):
        with pytest.raises(StoreUnavailable, match="is being vacuumed or restored"):
            store_locks.join(tmp_path, nothing, patience=IMPATIENT)
        with (
            pytest.raises(StoreUnavailable, match="in use"),
            store_locks.exclusive(tmp_path, IMPATIENT),
        ):
            pass
    store_locks.join(tmp_path, nothing).close()


def test_a_store_in_use_cannot_be_had_alone(tmp_path):
    with (
        store_locks.join(tmp_path, nothing),
        pytest.raises(StoreUnavailable, match="in use by a running service; stop both services"),
        store_locks.exclusive(tmp_path, IMPATIENT),
    ):
        pass
    with store_locks.exclusive(tmp_path):
        pass


def test_a_process_that_is_killed_has_the_store_no_more(tmp_path):
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


# Comes and goes, and leaves a mark while inside; says so if it meets a mark of the others.
_COMER = """
import os, pathlib, sys, time
from hrag.engine.embedded.store import store_locks
from hrag.errors import StoreUnavailable
from tests.support.servers.forked import program_with_output
folder, ours, theirs = pathlib.Path(sys.argv[1]), *sys.argv[2:]
patience = store_locks.Patience(tries=4, pause_s=0.0002)
mark = folder / f"{ours}-{os.getpid()}"
until = time.monotonic() + 1
entered = 0
while time.monotonic() < until:
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


def test_two_namespaces_never_have_a_store_together(tmp_path):
    """Three processes of each come and go as fast as they can."""
    with ExitStack() as all_of_them:
        names = [("a", "b"), ("b", "a")] * 3
        comers = [
            all_of_them.enter_context(program_with_output("-c", _COMER, str(tmp_path), *pair))
            for pair in names
        ]
        said = [output.read().split() for _, output in comers]
    assert all(len(each) == 1 for each in said), said
    entered = [sum(int(each[0]) for each in said[side::2]) for side in (0, 1)]
    assert min(entered) > 10, entered
