"""Writes to the terminal: results to standard output, errors to standard error.

Text from documents is untrusted. It passes through `printable` before it reaches a terminal, so
that no document can move the cursor, set the window title or hide the text after it. JSON is
output for programs, so it contains exactly what is stored.
"""

import json
import sys
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from hrag.cli.terminal.exit_codes import ExitCode
from hrag.text.plain_text import printable


class Failure(Exception):
    """A command failed for a reason that its user can act on; the message says the reason."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def output() -> Console:
    """Returns a console on the current standard output.

    It writes no colours unless standard output is a terminal.
    """
    return Console(highlight=False)


def has_colour(console: Console) -> bool:
    """Returns True if the console shows colours; if not, characters must mark what matters."""
    return console.color_system is not None and not console.no_color


def print_line(text: str, style: str = "") -> None:
    """Writes `text`, which may come from documents, on one line without wrapping it."""
    line = " ".join(printable(text).splitlines())
    output().print(Text(line, style=style), soft_wrap=True)


def print_json(value: Any) -> None:
    """Writes `value` as an indented JSON document. Times and paths become texts."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_json_line(value: Any) -> None:
    """Writes `value` as one line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))


def show_error(message: str) -> None:
    """Writes `error: <message>` in red, on one line."""
    line = " ".join(printable(message).split())
    Console(stderr=True).print(Text(f"error: {line}", style="bold red"), soft_wrap=True)


def show_note(message: str) -> None:
    """Writes a message that is not a result to standard error, on one line."""
    line = " ".join(printable(message).split())
    Console(stderr=True, highlight=False).print(Text(line), soft_wrap=True)


def show_json_error(error: dict[str, Any]) -> None:
    """Writes `{"error": {...}}` to standard error, on one line."""
    sys.stderr.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
