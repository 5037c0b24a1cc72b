"""The command line, `hrag`.

A command imports what it needs when it runs, so that `hrag --help` starts quickly and
`hrag search` does not load the storage engine.
"""


def main() -> None:
    """Runs the command given in the process's arguments, then exits."""
    # Importing this package must load nothing.
    from hrag import private_files  # noqa: PLC0415
    from hrag.cli.app import app  # noqa: PLC0415

    private_files.set_umask()
    app(prog_name="hrag")
