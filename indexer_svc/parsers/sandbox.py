"""Confines a parser process: limits its rights before it reads the first byte of a file.

The address space of the process is limited. The process can open no files, start no processes and
write no core dump, and it ends when its parent ends. On x86-64 and AArch64, a seccomp filter also
refuses every system call except those for memory, for time, and for the socket that is already
open. If a hostile file makes the process run the file's code, this code cannot open the store, open
a connection, or send a signal to another process. A refused system call fails with EPERM.
"""

import ctypes
import errno
import platform
import resource
import signal
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_OPEN_FILES = 3

# These constants are from <linux/prctl.h>, <linux/seccomp.h>, <linux/filter.h>, <linux/audit.h>.
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# The allowed system calls are: read, write, close, fstat, lseek, mmap, mprotect, munmap, brk,
# mremap, madvise, rt_sigaction, rt_sigprocmask, rt_sigreturn, restart_syscall, sched_yield, getpid,
# setitimer, getrusage, gettimeofday, clock_gettime, futex, getrandom, exit, exit_group.
_CALLS: Mapping[str, tuple[int, ...]] = {
    "x86_64": (
        *(0, 1, 3, 5, 8, 9, 10, 11, 12, 25, 28, 13, 14, 15, 219, 24, 39, 38, 98, 96, 228, 202),
        *(318, 60, 231),
    ),
    "aarch64": (
        *(63, 64, 57, 80, 62, 222, 226, 215, 214, 216, 233, 134, 135, 139, 128, 124, 172, 103),
        *(165, 169, 113, 98, 278, 93, 94),
    ),
}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """The C type `struct sock_fprog`: the number of a filter's instructions, and their address."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(memory_bytes: int) -> bool:
    """Limits what this process may do, permanently; returns True if its system calls are filtered.

    `memory_bytes` limits the address space, which also contains the process's code and libraries.
    """
    # If the machine has no memory left, the kernel ends the process with the highest
    # `oom_score_adj`. This should be a parser process and not a service.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _control(_PR_SET_NO_NEW_PRIVS, 1)
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        resource.setrlimit(limit, (value, value))
    return _filter_calls()


def _filter_calls() -> bool:
    """Installs the filter of system calls; returns True if it is installed.

    Returns False if the kernel refuses the filter, or if there is no filter for this machine.
    """
    machine = platform.machine()
    if machine not in _CALLS or sys.maxsize < 1 << 32:
        return False
    program = b"".join(_filter_program(_ARCHITECTURES[machine], _CALLS[machine]))
    loaded_program = _Program(len(program) // 8, program)
    return _control(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(loaded_program))


def _filter_program(architecture: int, calls: tuple[int, ...]) -> list[bytes]:
    """Returns the instructions of a Berkeley Packet Filter that allows only `calls`.

    `calls` are the numbers of system calls. The numbers are different on each processor
    architecture. So the filter allows only calls for `architecture`, the kernel's constant for the
    architecture (AUDIT_ARCH).
    """
    to_refusal = len(calls) + 1
    return [
        _instruction(_LOAD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_IF_EQUAL, architecture, 0, to_refusal),
        _instruction(_LOAD, _NUMBER_OFFSET),
        *(
            _instruction(_JUMP_IF_EQUAL, number, len(calls) - index, 0)
            for index, number in enumerate(calls)
        ),
        _instruction(_RETURN, _REFUSE),
        _instruction(_RETURN, _ALLOW),
    ]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _control(option: int, *values: int) -> bool:
    """Calls `prctl` with an option and up to four arguments; returns True on success."""
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(option, *arguments)) == 0
