"""Programs forked from a process that has imported the services: each starts in 50 ms, not 1 s.

Otherwise like `python -m MODULE`: a process with its own environment, output and exit code.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_PRELOADED = ["indexer_svc.app", "retriever_svc.app", "hrag.engine.embedded.engine"]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOADED)


class Forked:
    """A module run as a program; the part of `subprocess.Popen` that tests use."""

    def __init__(self, module: str, environment: Mapping[str, str], log: Path) -> None:
        log.touch()  # There from the start, as Popen's is.
        self._process = _context.Process(
            target=_run, args=(module, dict(environment), log), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Returns the exit code, -n after signal n; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, or raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()


def _run(module: str, environment: dict[str, str], log: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.orig_argv = [sys.executable, "-m", module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
