"""Kills the process by SIGKILL at a statement that it sends to PostgreSQL."""

import os
import signal
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from hrag.engine.postgres.store.connection import Cursor

POINTS = ("commit.sending", "commit.sent")


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before_each(act: Callable[[Any], None]) -> None:
    """Calls `act` with each statement before it is sent, in the thread that sends it."""
    execute = Cursor.execute

    def hooked(cursor: Cursor, query: Any, *args: Any, **kwargs: Any) -> Any:
        act(query)
        return execute(cursor, query, *args, **kwargs)

    Cursor.execute = hooked  # type: ignore[assignment, method-assign]


def end_at_statement(at: int, delay_s: float) -> None:
    """Ends the process `delay_s` after its `at`-th statement began; at once if `delay_s` is 0."""
    # Several threads send statements; next() of a counter is atomic.
    numbers = count(1)

    def act(_: Any) -> None:
        if next(numbers) == at:
            threading.Timer(delay_s, _end).start() if delay_s else _end()

    _before_each(act)


def end_at_commit(point: str, at: int) -> None:
    """Ends the process before its `at`-th commit of documents, or before the next statement."""
    commits = count(1)
    is_over = threading.Event()

    def act(query: Any) -> None:
        if is_over.is_set():
            _end()
        if query == b"COMMIT" and next(commits) == at:
            if point == POINTS[0]:
                _end()
            is_over.set()

    _before_each(act)
