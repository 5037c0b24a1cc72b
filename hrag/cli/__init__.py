"""How is everything done from a terminal, with the command `hrag`?

A command imports what it needs when it runs, so that `hrag --help` starts quickly and
`hrag search` does not load the storage engine.
"""

import io
import sys
from contextlib import suppress


def main() -> None:
    """Runs the command that is named in the arguments of the process, then exits the process."""
    # These imports are inside the function, so that importing `hrag.cli` loads no other module of
    # hrag.
    from hrag.cli.app import app  # noqa: PLC0415
    from hrag.host import private_files  # noqa: PLC0415

    private_files.set_umask()
    _escape_unencodable_output()
    app(prog_name="hrag")


def _escape_unencodable_output() -> None:
    """Makes standard output escape characters that its encoding lacks.

    For example, a file name may contain bytes that are not text. On standard error, Python already
    escapes these characters.
    """
    # `reconfigure` raises OSError if Python believes that standard output can seek although it
    # cannot. This occurs if the file of the stream was replaced after a fork. In this case, no
    # character is escaped.
    with suppress(OSError):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
