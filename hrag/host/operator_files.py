"""Reads files that an operator or another program writes: keys, certificates, tokens, quotas.

Such a file decides who may call a service. So it must be a regular file, and only its owner may be
able to change it. A FIFO or a device would block whoever opens or reads it. This module cannot
prevent that a file system does not answer; `hrag.host.watched_file` limits the time.
"""

import os
import stat
from pathlib import Path

import structlog

_log = structlog.get_logger()

MAX_FILE_BYTES = 64 << 20
"""The largest file that is read. A key file of this size has about 200,000 keys."""

# The permission bits that let users other than the owner change a file. OpenSSH refuses a file of
# authorized keys with one of these bits, too.
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# With O_NONBLOCK, opening a FIFO that has no writer does not wait for a writer.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def read_operator_file(path: Path) -> bytes:
    """Returns the content of a file; symbolic links are followed.

    Raises OSError if the file cannot be read. Raises ValueError if it is not a regular file, if
    users other than its owner may write to it, or if it has more than MAX_FILE_BYTES bytes.
    """
    with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        mode = stat.S_IMODE(status.st_mode)
        if mode & _WRITABLE_BY_OTHERS:
            raise ValueError(
                f"{path} has the mode {mode:04o}, so users other than its owner may change it: "
                f"chmod go-w {path}"
            )
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"{path} has more than the allowed {MAX_FILE_BYTES:,} bytes")
    return content


def warn_if_readable(path: Path) -> None:
    """Logs a warning if users other than the owner and the group may read a secret in a file.

    This is no error, because a service in a container may be the only user who can reach the file.
    Raises OSError.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IROTH:
        _log.warning(
            "secret_readable",
            problem=f"{path} has the mode {mode:04o}, so all users may read the secret in it",
            remedy=f"chmod o= {path}",
        )
