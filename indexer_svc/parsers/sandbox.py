"""The limits that a parser process sets on itself before it sees a byte of a file.

Address space, no files, no new processes, no core dump, and death with the parent. On x86-64
and AArch64 a seccomp filter also refuses every system call but those for memory, time and the
socket that is open already, so code that a hostile file brings in can neither open the store
nor a connection nor signal another process. Refused calls fail with EPERM.
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

# Constants of <linux/prctl.h>, <linux/seccomp.h>, <linux/filter.h> and <linux/audit.h>.
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# read, write, close, fstat, lseek, mmap, mprotect, munmap, brk, mremap, madvise, rt_sigaction,
# rt_sigprocmask, rt_sigreturn, restart_syscall, sched_yield, getpid, setitimer, getrusage,
# gettimeofday, clock_gettime, futex, getrandom, exit, exit_group
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
    """`struct sock_fprog`: the number of instructions and where they are."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(memory_bytes: int) -> bool:
    """Confines this process for good; returns whether system calls are filtered too.

    `memory_bytes` limits its address space, which holds its code and libraries as well.
    """
    with suppress(OSError):  # If memory is short, the kernel ends a parser, not a service.
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
    machine = platform.machine()
    if machine not in _CALLS or sys.maxsize < 1 << 32:
        return False
    program = b"".join(_filter_program(_ARCHITECTURES[machine], _CALLS[machine]))
    filled = _Program(len(program) // 8, program)
    return _control(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filled))


def _filter_program(architecture: int, calls: tuple[int, ...]) -> list[bytes]:
    """Instructions of the Berkeley Packet Filter: `calls` of `architecture` are allowed."""
    to_refusal = len(calls) + 1
    return [
        _instruction(_LOAD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_IF_EQUAL, architecture, 0, to_refusal),
        _instruction(_LOAD, _NUMBER_OFFSET),
        *(
            _instruction(_JUMP_IF_EQUAL, number, len(calls) - place, 0)
            for place, number in enumerate(calls)
        ),
        _instruction(_RETURN, _REFUSE),
        _instruction(_RETURN, _ALLOW),
    ]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _control(option: int, *values: int) -> bool:
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(option, *arguments)) == 0
