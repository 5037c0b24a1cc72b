"""Asks the user to confirm a deletion that does not name each document by its id."""

import sys
from typing import Annotated

import typer

from hrag.cli.terminal.console import Failure
from hrag.cli.terminal.exit_codes import ExitCode

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, yes: bool) -> None:
    """Returns at once if `yes`; otherwise asks the user and returns if the user agrees.

    Raises typer.Abort if the user does not, and Failure if there is no terminal to ask at.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(
            f"there is no terminal to ask at: {question} To agree, add --yes",
            ExitCode.USAGE,
        )
    typer.confirm(question, abort=True, err=True)
