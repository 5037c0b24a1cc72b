"""Makes the process kill itself with SIGKILL at a statement that it sends to PostgreSQL."""

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
    """Makes every thread call `act` with each statement before it sends the statement."""
    execute = Cursor.execute

    def hooked(cursor: Cursor, query: Any, *args: Any, **kwargs: Any) -> Any:
        act(query)
        return execute(cursor, query, *args, **kwargs)

    Cursor.execute = hooked  # type: ignore[assignment, method-assign]


def end_at_statement(at: int, delay_s: float) -> None:
    """Makes the process kill itself at its `at`-th statement.

    The kill is `delay_s` seconds after the statement begins. If `delay_s` is 0, it is immediately
    before the statement.
    """
    # Several threads send statements; next() of a counter is atomic.
    statements = count(1)

    def act(_: Any) -> None:
        if next(statements) == at:
            threading.Timer(delay_s, _end).start() if delay_s else _end()

    _before_each(act)


def end_at_commit(point: str, at: int) -> None:
    """Makes the process kill itself at its `at`-th COMMIT of a transaction.

    If `point` is "commit.sending", the kill is before the COMMIT. If it is "commit.sent", the kill
    is before the statement after the COMMIT.
    """
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
