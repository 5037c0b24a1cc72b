"""Writes progress as plain lines to standard error, at intervals, while a command works."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from hrag.cli.terminal.console import show_note

LINE_INTERVAL_S = 5.0


@contextmanager
def progress_lines(
    describe: Callable[[], str], interval_s: float = LINE_INTERVAL_S
) -> Iterator[None]:
    """Calls `describe` every `interval_s` seconds while the block runs, and writes the result.

    `describe` is called in another thread.
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
