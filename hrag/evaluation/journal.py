"""What is finished, kept in a file, so that a run that was stopped goes on where it was.

One JSON object in each line, written as soon as a call has ended: its key, a hash of all that
the result depends on, and the result. Failed calls are not kept; the next run makes them again.
"""

import hashlib
import json
import os
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from hrag.evaluation.json_lines import Row, RowWriter, json_rows, unreadable
from hrag.host.private_files import opener
from hrag.values import canonical_json

VERSION = 1

_HEADER = json.dumps({"journal": "hrag eval", "version": VERSION}).encode() + b"\n"

Value = TypeVar("Value")


def key_of(kind: str, **parts: Any) -> str:
    """Returns the key of a call: a hash of its kind and of all that decides its result."""
    return hashlib.sha256(canonical_json.encode({"kind": kind, **parts})).hexdigest()


class Journal:
    """The finished calls of one run or more. Thread-safe. A context manager.

    Without a path they are kept for this run alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Reads what is finished, and creates the file if there is none.

        A last line that a stopped run left incomplete is removed. Raises InvalidArgument if the
        file is no journal or cannot be written.
        """
        self._rows: dict[str, Row] = {}
        self._results: dict[str, object] = {}  # Of this run.
        self._lock = Lock()
        self._file: RowWriter | None = None
        if path is None:
            return
        try:
            _prepare(path)
            self._rows = {row.text("key"): row for row in islice(json_rows(path), 1, None)}
            self._file = RowWriter(path)
        except OSError as error:
            raise unreadable(path, error.strerror or str(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def finished(self) -> int:
        """Number of calls that earlier runs have finished."""
        return len(self._rows)

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        if self._file is not None:
            self._file.close()

    def get(self, key: str, kind: type[Value]) -> Value | None:
        """Returns the finished result, a dataclass of this kind; None if there is none."""
        result = self._results.get(key)
        if isinstance(result, kind):
            return result
        row = self._rows.get(key)
        if row is None:
            return None
        try:
            return TypeAdapter(kind).validate_python(row.fields["value"])
        except (KeyError, ValidationError):
            row.refuse("value", row.fields.get("value"), f"a {kind.__name__} of this version")

    def put(self, key: str, value: Any) -> None:
        """Keeps a result, a dataclass. It is in the file when this returns.

        Raises OSError, which names the file, if it cannot be written.
        """
        with self._lock:
            if self._file is not None:
                self._file.write({"key": key, "value": asdict(value)})
            self._results[key] = value


def _prepare(path: Path) -> None:
    """Creates the file with its header, or removes what follows the last line end.

    Raises InvalidArgument for a file that is no journal; that is left as it is.
    """
    content = path.read_bytes() if path.exists() else b""
    if not content:
        with open(path, "wb", opener=opener) as file:
            file.write(_HEADER)
    elif not content.startswith(_HEADER):
        raise unreadable(path, f"it is no journal of version {VERSION}; name a new file")
    else:
        os.truncate(path, content.rfind(b"\n") + 1)
