"""Tests of the folder of a store: allowed file systems, and explanations of denied access."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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


def test_without_mounts_the_file_system_is_unknown_and_invalid_lines_are_ignored():
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
def test_local_file_systems_are_accepted(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(location, "file_system", lambda mountinfo, path: kind)
    location.refuse_network(tmp_path)


def test_the_mounts_of_this_machine_can_be_read(tmp_path):
    mountinfo = Path("/proc/self/mountinfo").read_text()
    assert location.file_system(mountinfo, Path("/proc/self")) == "proc"
    location.refuse_network(tmp_path / "not" / "there" / "yet")


# Tests of files that belong to another user.


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can reach, unlike the folders of pytest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@contextmanager
def unprivileged() -> Iterator[str]:
    """Makes a process of root run as the user `nobody`, because root may read any file.

    Yields the uid of the process as error messages show it.
    """
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
def test_a_file_without_access_is_named_with_its_owner_and_the_processs_user(shared, name):
    shared.chmod(0o777)
    (shared / name).touch(0o000)
    with unprivileged() as uid:
        message = location.explanation(shared, errno.EACCES, "Permission denied")
    assert message.startswith(f"cannot use {shared / name}: it belongs to ")
    assert f"(uid {os.geteuid()}) with mode 0000, and this process runs as " in message
    assert uid in message.partition("runs as")[2]


@pytest.mark.parametrize("name", ["", "store", "new/store"])
def test_a_folder_without_access_is_named_whether_or_not_the_store_exists(shared, name):
    shared.chmod(0o500)
    with unprivileged():
        message = location.explanation(shared / name, errno.EACCES, "Permission denied")
    assert message.startswith(f"cannot use {shared}: it belongs to ")
    assert "with mode 0500" in message


CAUSES = {
    errno.EROFS: "mounted read-only; mount it writable",
    errno.EACCES: "",
    errno.EPERM: "refuses this to the owner too",
    errno.EMFILE: "ulimit -n",
    errno.ENFILE: "fs.file-max",
    errno.ENAMETOOLONG: "longer than the file system allows",
    errno.ENOTDIR: "is a file, not a folder",
    errno.EISDIR: "names a folder",
    errno.ELOOP: "form a loop",
    errno.EIO: "dmesg",
    errno.ENODEV: "",
}


@pytest.mark.parametrize("code", CAUSES)
def test_an_error_of_the_file_system_is_explained_by_its_number(tmp_path, code):
    """The process may use the folder, so the message must not send it to the folder's owner."""
    with pytest.raises(StoreUnavailable) as raised, location.explained_errors(tmp_path):
        raise OSError(code, os.strerror(code), "a.bin")
    message = raised.value.message
    assert message.startswith(f"cannot use {tmp_path}: {os.strerror(code)}: a.bin")
    assert CAUSES[code] in message
    assert "run as the owner" not in message


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (errno.ENOSPC, "the disk of {} is full"),
        (errno.EDQUOT, "the disk quota of the user of this process is used up in {}"),
        (errno.EFBIG, "a file in {} is as large as"),
    ],
)
def test_an_error_without_space_is_explained_by_its_number(tmp_path, code, meaning):
    with pytest.raises(StorageFull) as raised, location.explained_errors(tmp_path):
        raise OSError(code, os.strerror(code))
    assert raised.value.message.startswith(meaning.format(tmp_path))


def test_a_full_disk_raises_another_error_than_other_failures(tmp_path):
    with pytest.raises(StorageFull, match="is full"), location.explained_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    failure = OSError(errno.EIO, "Input/output error", "a.bin")
    with (
        pytest.raises(StoreUnavailable, match=r"Input/output error: a\.bin"),
        location.explained_errors(tmp_path),
    ):
        raise failure
