"""Terminal output: results go to standard output, errors to standard error.

Text from documents is untrusted. It passes `printable` before it reaches a terminal, so that
no document can move the cursor, set the window title or hide what follows.
"""

from rich.console import Console
from rich.text import Text

from hrag.plain_text import printable


class Failure(Exception):
    """A command failed for a reason that its user can act on; the message says which."""


def output() -> Console:
    """Returns a console on the present standard output; plain unless that is a terminal."""
    return Console(highlight=False)


def has_colour(console: Console) -> bool:
    """Whether the console shows colours; if not, text marks must carry the meaning."""
    return console.color_system is not None and not console.no_color


def show_error(message: str) -> None:
    """Writes `error: <message>` in red, on one line."""
    line = " ".join(printable(message).split())
    Console(stderr=True).print(Text(f"error: {line}", style="bold red"), soft_wrap=True)
