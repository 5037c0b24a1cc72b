"""A file of finished calls, so that a run that was stopped can continue where it stopped.

Each line is a JSON object, which is written as soon as a call has ended. The object contains the
result of the call and the key of the call. The key is a hash of everything on which the result
depends. Failed calls are not stored, so the next run makes these calls again.
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

VERSION = 2

_HEADER = json.dumps({"journal": "hrag eval", "version": VERSION}).encode() + b"\n"

Value = TypeVar("Value")


def key_of(kind: str, **parts: Any) -> str:
    """Returns the key of a call: a hash of `kind` and of all values on which the result depends."""
    return hashlib.sha256(canonical_json.encode({"kind": kind, **parts})).hexdigest()


class Journal:
    """Stores the results of the finished calls of one or more runs.

    Thread-safe. A context manager: the file is closed at the end of the `with` block. Without a
    path, the results are stored in memory, for this run only.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Reads the results of the finished calls, and creates the file if it does not exist.

        If a stopped run left the last line incomplete, the line is removed. Raises
        InvalidArgument if the file is not a journal or cannot be written.
        """
        # `_rows` contains the lines of earlier runs, and `_results` the results of this run, both
        # by the key of the call.
        self._rows: dict[str, Row] = {}
        self._results: dict[str, object] = {}
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
        """The count of calls whose results earlier runs have stored."""
        return len(self._rows)

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        if self._file is not None:
            self._file.close()

    def get(self, key: str, kind: type[Value]) -> Value | None:
        """Returns the stored result of the call with this key, or None if no result is stored.

        `kind` is the dataclass of the result. Raises InvalidArgument if the stored result does not
        have the fields of this dataclass, because another version of hrag has written it.
        """
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
        """Stores `value`, the result of a call, under the call's key. `value` is a dataclass.

        When `put` returns, the result is in the file. Raises OSError, which names the file, if the
        file cannot be written.
        """
        with self._lock:
            if self._file is not None:
                self._file.write({"key": key, "value": asdict(value)})
            self._results[key] = value


def _prepare(path: Path) -> None:
    """Creates the file with its first line, or removes an incomplete last line from the file.

    Raises InvalidArgument if the file is not a journal, and leaves the file unchanged.
    """
    content = path.read_bytes() if path.exists() else b""
    if not content:
        with open(path, "wb", opener=opener) as file:
            file.write(_HEADER)
    elif not content.startswith(_HEADER):
        raise unreadable(path, f"it is not a journal of version {VERSION}; name a new file")
    else:
        os.truncate(path, content.rfind(b"\n") + 1)
