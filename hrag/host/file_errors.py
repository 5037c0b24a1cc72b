"""Explains errors that the operating system reports when a file or a folder is opened or created.

The words of the operating system say what was refused, but often not why. A wrong guess sends an
operator the wrong way: on a read-only file system, even root may not write.
"""

import errno

_CAUSES = {
    errno.EROFS: (
        "the file system is mounted read-only; mount it writable, or name a folder on another one"
    ),
    errno.EPERM: (
        "the kernel refuses this to the owner too: the file is immutable (lsattr), or a security "
        "module or the container's configuration forbids it"
    ),
    errno.EMFILE: "this process has as many open files as its limit allows (ulimit -n)",
    errno.ENFILE: "the machine has as many open files as its limit allows (sysctl fs.file-max)",
    errno.ENAMETOOLONG: "the path or one of its parts is longer than the file system allows",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "the path names a folder where a file is needed",
    errno.ELOOP: "the symbolic links of the path form a loop, or are too many",
    errno.EIO: "the disk, or the connection to it, has failed; the kernel's log (dmesg) says more",
}


def with_cause(reason: str, code: int) -> str:
    """Returns `reason`, followed by the likely cause of an error with this number, if it is known.

    `code` is the number of the error (errno), and `reason` what the operating system says about it.
    """
    cause = _CAUSES.get(code)
    return f"{reason}; {cause}" if cause else reason
