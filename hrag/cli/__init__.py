"""The command line, `hrag`.

A command imports what it needs when it runs, so that `hrag --help` starts quickly and
`hrag search` does not load the storage engine.
"""

import io
import sys
from contextlib import suppress


def main() -> None:
    """Runs the command given in the process's arguments, then exits."""
    # Importing this package must load nothing of ours.
    from hrag.cli.app import app  # noqa: PLC0415
    from hrag.host import private_files  # noqa: PLC0415

    private_files.set_umask()
    _escape_what_cannot_be_encoded()
    app(prog_name="hrag")


def _escape_what_cannot_be_encoded() -> None:
    """On standard output, such as bytes of a file name; Python does so on standard error."""
    # A stream whose file was replaced after a fork may be taken for one that can seek.
    with suppress(OSError):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
