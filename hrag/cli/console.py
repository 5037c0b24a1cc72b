"""Where commands write: results to standard output, problems to standard error.

Text from documents is a stranger's: before it reaches a terminal it passes `printable`,
so that no document can move the cursor, set a title or hide what follows.
"""

from rich.console import Console
from rich.text import Text

_UNSEEN = "\N{REPLACEMENT CHARACTER}"
_KEPT = "\t\n"
_CONTROLS = {code: _UNSEEN for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in _KEPT}
_CONTROLS[ord("\r")] = " "


class Failure(Exception):
    """A command cannot do its work; the message is for whoever typed it."""


def output() -> Console:
    """Standard output as it is now; plain where it is no terminal."""
    return Console(highlight=False)


def has_colour(console: Console) -> bool:
    """Whether a style can carry meaning; otherwise marks have to."""
    return console.color_system is not None and not console.no_color


def show_error(message: str) -> None:
    """Writes `error: <message>` in red, on one line."""
    line = " ".join(printable(message).split())
    Console(stderr=True).print(Text(f"error: {line}", style="bold red"), soft_wrap=True)


def printable(text: str) -> str:
    """`text` without control characters, as long as before, so that offsets still hold."""
    return text.translate(_CONTROLS)
