"""How is everything done from a terminal, with the command `hrag`?

A command imports what it needs when it runs, so that `hrag --help` starts quickly and
`hrag search` does not load the storage engine.
"""

import io
import sys
from contextlib import suppress


def main() -> None:
    """Runs the command given in the process's arguments, then exits."""
    # Importing `hrag.cli` must not import any other module of hrag.
    from hrag.cli.app import app  # noqa: PLC0415
    from hrag.host import private_files  # noqa: PLC0415

    private_files.set_umask()
    _escape_unencodable_output()
    app(prog_name="hrag")


def _escape_unencodable_output() -> None:
    """Makes standard output escape characters that its encoding lacks.

    A file name may contain bytes that are not text, for example. Python already escapes them on
    standard error.
    """
    # Python may believe that a stream can seek although its file was replaced after a fork.
    # `reconfigure` then raises OSError.
    with suppress(OSError):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
