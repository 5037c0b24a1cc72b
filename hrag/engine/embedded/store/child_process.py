"""Runs a module of hrag in a child process.

Reading damaged pages of LMDB may kill the process that reads. If a child process reads the pages,
only the child is killed.

The child ends when its parent ends, even if the parent is killed. Otherwise the child could keep a
read transaction open, and the store would grow and could not be vacuumed.

`run_module` starts this command, which runs MODULE:

    python -m hrag.engine.embedded.store.child_process PARENT MODULE ARGUMENTS...
"""

import ctypes
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

_MODULE = "hrag.engine.embedded.store.child_process"
# An option of `prctl`, from <linux/prctl.h>: it sets a signal, and the kernel sends this signal to
# the calling process when its parent process ends.
_PR_SET_PDEATHSIG = 1
# The folder that contains the package `hrag`.
_IMPORT_ROOT = Path(__file__).parents[4]


def run_module(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs `python -m module` in a child process and waits until the child ends.

    Returns the child's exit code, standard output and standard error. Its standard input is empty.
    """
    return subprocess.run(
        [sys.executable, "-m", _MODULE, str(os.getpid()), module, *arguments],
        cwd=_IMPORT_ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
    )


def main(parent: int, module: str, *arguments: str) -> None:
    """Runs `module` with `arguments` in this process, which `run_module` has started.

    `parent` is the PID of the process that called `run_module`. When the thread that called
    `run_module` ends, the kernel kills this process.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # If the parent ended before the call of `prctl`, the kernel sends no signal, so this process
    # must end itself.
    if os.getppid() != parent:
        sys.exit("the parent has ended")
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
