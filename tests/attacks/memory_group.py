"""A control group (cgroup) that limits the memory of the programs in it, like that of a container.

Needs the right to create groups, and the memory controller of cgroup version 1 or 2.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers.processes import fresh
from tests.support.until import until

_VERSION_1 = Path("/sys/fs/cgroup/memory")
_VERSION_2 = Path("/sys/fs/cgroup")
_MOVED_THEN_RUN = 'echo $$ > "$0" && exec "$@"'


@dataclass(frozen=True)
class MemoryGroup:
    """A group without a limit at first. Its memory includes cached pages of files."""

    folder: Path
    is_version_1: bool

    def start(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path
    ) -> "subprocess.Popen[bytes]":
        """Starts a new interpreter in the group; its child processes are in the group too."""
        procs = str(self.folder / "cgroup.procs")
        return fresh(arguments, environment, log, ("/bin/sh", "-c", _MOVED_THEN_RUN, procs))

    @property
    def used_bytes(self) -> int:
        name = "memory.usage_in_bytes" if self.is_version_1 else "memory.current"
        return int((self.folder / name).read_text("ascii"))

    def limit(self, size_bytes: int) -> None:
        """Limits the memory of all programs of the group together."""
        name = "memory.limit_in_bytes" if self.is_version_1 else "memory.max"
        (self.folder / name).write_text(str(size_bytes), "ascii")

    @property
    def killed(self) -> int:
        """How many processes the kernel has killed because of the limit."""
        name = "memory.oom_control" if self.is_version_1 else "memory.events"
        lines = (self.folder / name).read_text("ascii").splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])


@contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """Creates a group for the `with` block; skips the test if that is not possible."""
    is_version_1 = _VERSION_1.is_dir()
    folder = (_VERSION_1 if is_version_1 else _VERSION_2) / f"hrag-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"cannot create a control group: {error}")
    try:
        if not is_version_1 and not (folder / "memory.max").exists():
            pytest.skip("the memory controller is not enabled for new control groups")
        yield MemoryGroup(folder, is_version_1)
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text("ascii"))
        folder.rmdir()
