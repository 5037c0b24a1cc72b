"""Terminal output: results go to standard output, errors to standard error.

Text from documents is untrusted. It passes `printable` before it reaches a terminal, so that
no document can move the cursor, set the window title or hide what follows. Output that is
read by programs, JSON, holds what is stored.
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
    """A command failed for a reason that its user can act on; the message says which."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def output() -> Console:
    """Returns a console on the present standard output; plain unless that is a terminal."""
    return Console(highlight=False)


def has_colour(console: Console) -> bool:
    """Whether the console shows colours; if not, text marks must carry the meaning."""
    return console.color_system is not None and not console.no_color


def print_line(text: str, style: str = "") -> None:
    """Writes `text`, which may come from documents, on one line that is never wrapped."""
    line = " ".join(printable(text).splitlines())
    output().print(Text(line, style=style), soft_wrap=True)


def print_json(value: Any) -> None:
    """Writes `value` as an indented JSON document; times and paths as texts."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_json_line(value: Any) -> None:
    """Writes `value` as one line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))


def show_error(message: str) -> None:
    """Writes `error: <message>` in red, on one line."""
    line = " ".join(printable(message).split())
    Console(stderr=True).print(Text(f"error: {line}", style="bold red"), soft_wrap=True)


def show_note(message: str) -> None:
    """Writes what a user should know, and no result, to standard error, on one line."""
    line = " ".join(printable(message).split())
    Console(stderr=True, highlight=False).print(Text(line), soft_wrap=True)


def show_json_error(error: dict[str, Any]) -> None:
    """Writes `{"error": {...}}` on one line."""
    sys.stderr.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
