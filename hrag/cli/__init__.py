"""The command line, `hrag`.

Every command imports what it needs when it runs, so that `hrag --help` is instant and a
search never loads storage.
"""


def main() -> None:
    """Runs the command that the process's arguments name, then exits."""
    from hrag.cli.app import app  # noqa: PLC0415 - importing this package loads nothing.

    app(prog_name="hrag")
