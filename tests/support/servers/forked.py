"""Starts programs in 50 ms instead of 1 s: forks them from a process with the services imported.

Otherwise the programs are like `python -m MODULE` and `python -c CODE`: separate processes with
arguments, environment, output and exit code. Their standard input is empty.
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
"""The arguments that run hrag's command line."""

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
    """A running program, with the part of `subprocess.Popen` that tests use.

    `arguments` are arguments of the interpreter. The standard output of the program is written to
    `log`, and its standard error to `errors`, by default also to `log`.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
    ) -> None:
        for path in (log, errors or log):
            # Popen also creates both files before the program starts.
            path.touch()
        self._process = _context.Process(
            target=_run, args=(arguments, dict(environment), log, errors or log), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Returns the exit code, -n after signal n. Returns None while the program runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit code. Raises `subprocess.TimeoutExpired`."""
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
    """Runs a program to its end. Returns its exit code and output, as `subprocess.run` does."""
    with TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        program = Forked(arguments, environment or os.environ, output, errors)
        try:
            code = program.wait(timeout_s)
        finally:
            program.kill()
        outputs = (path.read_text("utf-8", "replace") for path in (output, errors))
        return subprocess.CompletedProcess(arguments, code, *outputs)


@contextmanager
def program_with_output(*arguments: str) -> Iterator[tuple[Forked, TextIO]]:
    """Runs a program; yields it and the text stream of its output. Kills it after the block."""
    with TemporaryDirectory() as folder:
        pipe = Path(folder, "output")
        os.mkfifo(pipe)
        program = Forked(arguments, os.environ, pipe)
        try:
            with pipe.open(encoding="utf-8") as lines:
                yield program, lines
        finally:
            program.kill()
            program.wait()


def _run(
    arguments: tuple[str, ...], environment: dict[str, str], output: Path, errors: Path
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in ((1, output), (2, errors)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)
    sys.orig_argv = [sys.executable, *arguments]
    kind, program, *program_arguments = arguments
    sys.argv = [kind, *program_arguments]
    if kind == "-m":
        # A module that runs as a program must not have been imported before.
        sys.modules.pop(program, None)
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})
