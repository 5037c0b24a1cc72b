"""Where a store may lie, whose it is, and who may have it together."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hrag.engine.embedded.store import location
from hrag.errors import StorageFull, StoreUnavailable

MOUNTS = r"""
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 0:40 /exported /mnt/team\040data rw,relatime - nfs4 host:/exported rw,vers=4.2
25 24 8:1 / /mnt/team\040data/local rw master:3 propagate_from:2 - xfs /dev/sda1 rw
26 22 0:50 / /buckets rw - fuse.s3fs s3fs rw
27 22 0:51 / /over rw - nfs host:/a rw
28 22 0:52 / /over rw - tmpfs tmpfs rw
29 22 0:53 / /back\134slash rw - cifs //host/share rw
""".strip()

NOBODY = 65534


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/hrag", "ext4"),
        ("/", "ext4"),
        ("/process", "ext4"),
        ("/mnt/team data", "nfs4"),
        ("/mnt/team data/a/b", "nfs4"),
        ("/mnt/team data/local/a", "xfs"),
        ("/mnt/team datax", "ext4"),
        ("/buckets/a", "fuse.s3fs"),
        ("/over/a", "tmpfs"),
        ("/back\\slash", "cifs"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_and_latest_mount(path, kind):
    assert location.file_system(MOUNTS, Path(path)) == kind


def test_no_mount_holds_a_path_without_a_root():
    assert location.file_system("", Path("/a")) == ""
    assert location.file_system("nonsense\n1 2 3 - x\n" + MOUNTS, Path("/a")) == "ext4"


NETWORK = (
    "nfs nfs4 cifs smb3 smbfs ncpfs afs 9p ceph lustre beegfs glusterfs fuse.glusterfs "
    "fuse.sshfs fuse.s3fs fuse.gcsfuse fuse.rclone fuse.ceph"
)


@pytest.mark.parametrize("kind", NETWORK.split())
def test_network_file_systems_are_refused(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(location, "file_system", lambda mountinfo, path: kind)
    with pytest.raises(StoreUnavailable) as refused:
        location.refuse_network(tmp_path)
    message = refused.value.message
    assert str(tmp_path) in message
    assert f"({kind})" in message
    assert "use a local disk" in message


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.x", ""])
def test_local_file_systems_are_taken(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(location, "file_system", lambda mountinfo, path: kind)
    location.refuse_network(tmp_path)


def test_this_machines_own_mounts_can_be_read(tmp_path):
    mountinfo = Path("/proc/self/mountinfo").read_text()
    assert location.file_system(mountinfo, Path("/proc/self")) == "proc"
    location.refuse_network(tmp_path / "not" / "there" / "yet")


# Files of others


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@contextmanager
def unprivileged() -> Iterator[str]:
    """As nobody if we are root, for root may do anything; gives the user's number."""
    if os.geteuid() != 0:
        yield f"(uid {os.geteuid()})"
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield f"(uid {NOBODY})"
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb", "users.lock", "indexer.lock", "segments"])
def test_a_file_that_is_denied_is_named_with_its_owner_and_us(shared, name):
    shared.chmod(0o777)
    (shared / name).touch(0o000)
    with unprivileged() as us:
        message = location.denial(shared, "Permission denied")
    assert message.startswith(f"cannot use {shared / name}: it belongs to ")
    assert f"(uid {os.geteuid()}) with mode 0000, and this process runs as " in message
    assert us in message.partition("runs as")[2]


@pytest.mark.parametrize("name", ["", "store", "new/store"])
def test_a_folder_that_is_denied_is_named_whether_or_not_the_store_is_there(shared, name):
    shared.chmod(0o500)
    with unprivileged():
        message = location.denial(shared / name, "Permission denied")
    assert message.startswith(f"cannot use {shared}: it belongs to ")
    assert "with mode 0500" in message


def test_another_reason_is_told_as_it_is(tmp_path):
    assert location.denial(tmp_path, "No such device") == f"cannot use {tmp_path}: No such device"


def test_a_full_disk_is_told_apart_from_other_failures(tmp_path):
    with pytest.raises(StorageFull, match="is full"), location.explained(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    failure = OSError(errno.EIO, "Input/output error", "a.bin")
    with (
        pytest.raises(StoreUnavailable, match=r"Input/output error: a\.bin"),
        location.explained(tmp_path),
    ):
        raise failure


# Who has it


@contextmanager
def member(folder: Path, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody of a PID namespace who has the store, in this process."""
    with monkeypatch.context() as patch:
        patch.setattr(location, "_namespace", namespace.encode)
        file = location.join(folder, nothing)
    with file:
        yield


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who have to wait for another give up soon."""
    monkeypatch.setattr(location, "_TRIES", 3)
    monkeypatch.setattr(location, "_PAUSE_S", 0.001)


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
        location.join(tmp_path, lambda: calls.append("first")),
        location.join(tmp_path, lambda: calls.append("second")),
    ):
        assert calls == ["first"]


@pytest.mark.usefixtures("impatient")
def test_an_exclusive_user_keeps_everybody_out_and_lets_them_in_again(tmp_path):
    with location.exclusive(tmp_path):
        with pytest.raises(StoreUnavailable, match="is being compacted or restored"):
            location.join(tmp_path, nothing)
        with pytest.raises(StoreUnavailable, match="in use"), location.exclusive(tmp_path):
            pass
    location.join(tmp_path, nothing).close()


@pytest.mark.usefixtures("impatient")
def test_a_store_in_use_cannot_be_had_alone(tmp_path):
    with (
        location.join(tmp_path, nothing),
        pytest.raises(StoreUnavailable, match="in use by a running service; stop both services"),
        location.exclusive(tmp_path),
    ):
        pass
    with location.exclusive(tmp_path):
        pass


def test_a_process_that_is_killed_has_the_store_no_more(tmp_path):
    script = (
        "import sys, pathlib, time; from hrag.engine.embedded.store import location\n"
        "file = location.join(pathlib.Path(sys.argv[1]), lambda: None)\n"
        "print('in', flush=True); time.sleep(60)"
    )
    with running(script, str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        process.kill()
        process.wait()
        with location.exclusive(tmp_path):
            pass


# Comes and goes, and leaves a mark while inside; says so if it meets a mark of the others.
_COMER = """
import os, pathlib, sys, time
from hrag.engine.embedded.store import location
from hrag.errors import StoreUnavailable
folder, ours, theirs = pathlib.Path(sys.argv[1]), *sys.argv[2:]
location._namespace = ours.encode
location._TRIES, location._PAUSE_S = 4, 0.0002
mark = folder / f"{ours}-{os.getpid()}"
until = time.monotonic() + 1
entered = 0
while time.monotonic() < until:
    try:
        with location.join(folder, lambda: None):
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
            all_of_them.enter_context(running(_COMER, str(tmp_path), *pair)) for pair in names
        ]
        said = [comer.communicate(timeout=60)[0].split() for comer in comers]
    assert all(len(each) == 1 for each in said), said
    entered = [sum(int(each[0]) for each in said[side::2]) for side in (0, 1)]
    assert min(entered) > 10, entered


@contextmanager
def running(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process with this one's modules; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
