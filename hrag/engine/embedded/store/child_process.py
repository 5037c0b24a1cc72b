"""Runs a module of ours as a program of its own, which damaged pages may end.

It ends with its parent, even if that is killed: it may hold a read transaction, for which the
store would grow and could not be vacuumed. `run_module` starts the module through this one:

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
_PR_SET_PDEATHSIG = 1  # Of <linux/prctl.h>.
_IMPORT_ROOT = Path(__file__).parents[4]  # The folder that holds the package `hrag`.


def run_module(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Returns how `python -m module` ended, and what it wrote; its standard input is empty."""
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
    """Runs the module here. The kernel ends this process with the thread that started it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent has ended")  # Before it could be told to the kernel.
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
