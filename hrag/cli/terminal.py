"""Writes what commands show: to a terminal, or to programs that read their output.

Results go to standard output, errors and notes to standard error. A table has aligned columns on
a terminal, and tabs between its cells in a pipe.

Text from documents is untrusted. It passes through `printable` before it reaches a terminal, so
that no document can move the cursor, set the window title or hide the text after it. JSON is
output for programs, so it contains exactly what is stored.

This module also defines the exit codes. Scripts rely on them, and docs/guide/command-line.md lists
them. Two kinds of exit codes are not defined here: `hrag check` has separate exit codes, and a
command that is interrupted by Ctrl-C ends with 130.
"""

import io
import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, IntEnum
from functools import wraps
from threading import Event, Thread
from typing import Any, NamedTuple

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hrag.text.plain_text import printable
from hrag.values import errors
from hrag.values.errors import HragError

LINE_INTERVAL_S = 5.0

_COLUMN_GAP = 2
_MIN_COLUMN_WIDTH = 8
_ELLIPSIS = "…"


class ExitCode(IntEnum):
    """The exit codes of all commands except `hrag check`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    DENIED = 5
    NOT_INSTALLED = 6


_EXIT_CODES: dict[type[HragError], ExitCode] = {
    errors.InvalidArgument: ExitCode.USAGE,
    # The arguments are right, but a document is not.
    errors.UnreadableDocument: ExitCode.FAILED,
    errors.BlankDocument: ExitCode.FAILED,
    errors.TooLarge: ExitCode.FAILED,
    errors.FolderRefused: ExitCode.USAGE,
    errors.DatabaseRefused: ExitCode.USAGE,
    errors.StoreUnusable: ExitCode.FAILED,
    errors.DocumentChanged: ExitCode.UNAVAILABLE,
    errors.CollectionNotFound: ExitCode.NOT_FOUND,
    errors.AliasNotFound: ExitCode.NOT_FOUND,
    errors.DocumentNotFound: ExitCode.NOT_FOUND,
    errors.ChunkNotFound: ExitCode.NOT_FOUND,
    errors.OriginalNotFound: ExitCode.NOT_FOUND,
    errors.StoreMissing: ExitCode.NOT_FOUND,
    errors.ServiceUnavailable: ExitCode.UNAVAILABLE,
    errors.StoreUnavailable: ExitCode.UNAVAILABLE,
    errors.EmbedderUnavailable: ExitCode.UNAVAILABLE,
    errors.ChatUnavailable: ExitCode.UNAVAILABLE,
    errors.RerankerUnavailable: ExitCode.UNAVAILABLE,
    errors.DeadlineExceeded: ExitCode.UNAVAILABLE,
    errors.SequenceNotReached: ExitCode.UNAVAILABLE,
    errors.TooBusy: ExitCode.UNAVAILABLE,
    errors.RateQuotaExceeded: ExitCode.UNAVAILABLE,
    errors.Unauthenticated: ExitCode.DENIED,
    errors.PermissionDenied: ExitCode.DENIED,
}


def exit_code_of(error: HragError) -> ExitCode:
    """Returns the exit code of a command that ends with `error`."""
    codes = (_EXIT_CODES[cls] for cls in type(error).__mro__ if cls in _EXIT_CODES)
    return next(codes, ExitCode.FAILED)


class Failure(Exception):
    """A command failed for a reason that its user can remove; the message says the reason."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def output() -> Console:
    """Returns a console on the current standard output.

    It writes no colours unless standard output is a terminal.
    """
    return Console(highlight=False)


class _ClosablePipe(io.FileIO):
    """A file that ignores what is written to it after the reader of the pipe has closed it."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            return memoryview(content).nbytes


def finishes_without_reader(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a function that runs `command` to its end, also if nobody reads its output any more.

    It is for commands that change or write something in several steps. For example, `| head` closes
    the pipe after ten lines, and the command still writes its report.
    """

    @wraps(command)
    def finished(*args: Any, **options: Any) -> None:
        with _output_may_close():
            command(*args, **options)

    return finished


@contextmanager
def _output_may_close() -> Iterator[None]:
    """Ignores errors of a closed pipe at standard output while the `with` block runs."""
    before = sys.stdout
    try:
        file = _ClosablePipe(before.fileno(), "wb", closefd=False)
    except (AttributeError, OSError):
        # Standard output is closed, or is not a file.
        yield
        return
    before.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=bool(before.line_buffering),
    )
    try:
        yield
    finally:
        replaced, sys.stdout = sys.stdout, before
        replaced.flush()


def has_colour(console: Console) -> bool:
    """Returns True if the console shows colours.

    If the console shows no colours, the caller marks matches by characters such as « and ».
    """
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
    text = Text(f"error: {_message_line(message)}", style="bold red")
    Console(stderr=True).print(text, soft_wrap=True)


def show_note(message: str) -> None:
    """Writes a message that is not a result to standard error, on one line."""
    Console(stderr=True, highlight=False).print(Text(_message_line(message)), soft_wrap=True)


def _message_line(message: str) -> str:
    return " ".join(printable(message).split())


def show_json_error(error: dict[str, Any]) -> None:
    """Writes `{"error": {...}}` to standard error, on one line."""
    sys.stderr.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")


class Fit(Enum):
    """The ways to print a cell that is wider than its column. The values describe these ways."""

    NEVER = "the column is as wide as its widest cell"
    CUT_END = "the cell's end is left out"
    CUT_START = "the cell's start is left out"
    FOLD = "the cell continues on the next line"


class Column(NamedTuple):
    """A column of a table.

    `fit` says what happens to cells that are wider than the column. Columns of numbers have
    `Fit.NEVER`: they are never narrowed, and their cells are aligned right.
    """

    name: str
    fit: Fit = Fit.FOLD


def show_table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[object]]
) -> None:
    """Prints a table. The cells are texts and whole numbers.

    On a terminal, the table fits the terminal's width, and empty columns are omitted. In a pipe,
    each row is one line with complete values; tabs and line ends inside a cell become blanks.
    """
    if console.is_terminal:
        texts = [[_format_cell(cell) for cell in row] for row in rows]
        if texts:
            console.print(_fitted_table(columns, texts, console))
        return
    typer.echo("\t".join(column.name for column in columns))
    for row in rows:
        typer.echo("\t".join(_one_line(str(cell)) for cell in row))


def _fitted_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], console: Console
) -> Table:
    filled = [index for index, _ in enumerate(columns) if any(row[index] for row in rows)]
    shown = [columns[index] for index in filled]
    cells = [[row[index] for index in filled] for row in rows]
    widths = _column_widths(shown, cells, console.width)
    table = Table(box=None, padding=(0, _COLUMN_GAP, 0, 0), header_style="bold")
    for column, width in zip(shown, widths, strict=True):
        table.add_column(
            column.name,
            justify="right" if column.fit is Fit.NEVER else "left",
            overflow="fold",
            width=width,
        )
    for row in cells:
        table.add_row(*map(_fit_cell, shown, row, widths))
    return table


def _column_widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int
) -> list[int]:
    """Returns the width of each column.

    If the table is wider than `available`, columns with CUT_START or CUT_END are narrowed first,
    then columns with FOLD. Words are divided only if the table is too wide even so.
    """
    texts = [[column.name, *(row[index] for row in rows)] for index, column in enumerate(columns)]
    widths = [max(map(cell_len, column_texts)) for column_texts in texts]
    narrowest = [_MIN_COLUMN_WIDTH] * len(columns)
    whole_words = [max(_longest_word(column_texts), _MIN_COLUMN_WIDTH) for column_texts in texts]
    steps = (
        ((Fit.CUT_START, Fit.CUT_END), narrowest),
        ((Fit.FOLD,), whole_words),
        ((Fit.FOLD,), narrowest),
    )
    for fits, minima in steps:
        elastic = [index for index, column in enumerate(columns) if column.fit in fits]
        _narrow(widths, elastic, minima, available)
    return widths


def _longest_word(texts: Iterable[str]) -> int:
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def _narrow(
    widths: list[int], elastic: Iterable[int], minima: Sequence[int], available: int
) -> None:
    """Narrows the columns `elastic`, always the widest one, until the table is not too wide.

    No column becomes narrower than its entry in `minima`.
    """
    excess = sum(widths) + _COLUMN_GAP * len(widths) - available
    while excess > 0:
        wider = [index for index in elastic if widths[index] > minima[index]]
        if not wider:
            return
        widths[max(wider, key=widths.__getitem__)] -= 1
        excess -= 1


def _fit_cell(column: Column, text: str, width: int) -> Text:
    if cell_len(text) > width and column.fit is Fit.CUT_START:
        while cell_len(text) >= width:
            text = text[1:]
        text = f"{_ELLIPSIS}{text}"
    cell = Text(text)
    if column.fit is Fit.CUT_END:
        cell.truncate(width, overflow="ellipsis")
    return cell


def _format_cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else _one_line(str(value))


def _one_line(text: str) -> str:
    return " ".join(printable(text).replace("\t", " ").splitlines())


@contextmanager
def progress_lines(
    describe: Callable[[], str], interval_s: float = LINE_INTERVAL_S
) -> Iterator[None]:
    """Writes a line to standard error every `interval_s` seconds while the `with` block runs.

    The function `describe` returns the line; another thread calls it.
    """
    done = Event()

    def write() -> None:
        while not done.wait(interval_s):
            show_note(describe())

    thread = Thread(target=write, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def interrupt_on_signals() -> None:
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does.

    If the process already ignores a signal, it still ignores the signal after this call. For
    example, `nohup` lets a command ignore SIGHUP, so that the command survives the end of the
    terminal.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
