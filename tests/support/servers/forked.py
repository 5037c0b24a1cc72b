"""Programs forked from a process that has imported the services: each starts in 50 ms, not 1 s.

Otherwise like `python -m MODULE` and `python -c CODE`: a process with its own arguments,
environment, output and exit code. Its standard input is empty.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

HRAG = ("-c", "from hrag.cli import main; main()")
"""The command line."""

_PRELOADED = [
    "indexer_svc.app",
    "retriever_svc.app",
    "hrag.cli.app",
    "hrag.engine.embedded.engine",
    "hrag.models.embedding.builtin",
    "hrag.models.embedding.openai_embedder",
    "hrag.models.chat.openai_chat",
]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOADED)


class Forked:
    """A program; the part of `subprocess.Popen` that tests use.

    `arguments` are those of the interpreter. `errors` is where it writes those, by default `log`.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
    ) -> None:
        for each in (log, errors or log):
            each.touch()  # There from the start, as Popen's is.
        self._process = _context.Process(
            target=_run, args=(arguments, dict(environment), log, errors or log), daemon=True
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


def ran(
    *arguments: str, environment: Mapping[str, str] | None = None, timeout_s: float = 90
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; like `subprocess.run`, with what it wrote."""
    with TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        program = Forked(arguments, environment or os.environ, output, errors)
        try:
            code = program.wait(timeout_s)
        finally:
            program.kill()
        said = (path.read_text("utf-8", "replace") for path in (output, errors))
        return subprocess.CompletedProcess(arguments, code, *said)


@contextmanager
def talking(*arguments: str) -> Iterator[tuple[Forked, TextIO]]:
    """A program and what it writes, line by line as it comes; killed at the end."""
    with TemporaryDirectory() as folder:
        pipe = Path(folder, "output")
        os.mkfifo(pipe)
        program = Forked(arguments, os.environ, pipe)
        try:
            with pipe.open(encoding="utf-8") as said:
                yield program, said
        finally:
            program.kill()
            program.wait()


def _run(
    arguments: tuple[str, ...], environment: dict[str, str], output: Path, errors: Path
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((1, output), (2, errors)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)
    sys.orig_argv = [sys.executable, *arguments]
    kind, program, *own = arguments
    sys.argv = [kind, *own]
    if kind == "-m":
        sys.modules.pop(program, None)  # A program's own module is not imported before it runs.
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})
