"""Reads files with one JSON object in each line, and appends lines to them.

Errors name the file, the line and the field.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from hrag.host.private_files import opener
from hrag.values.errors import InvalidArgument
from hrag.values.ids import quoted

# The maximum length of a line. A line with a document is not longer, because no service can be
# configured to accept a larger document.
MAX_LINE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of one line of a file, with the path of the file and the line number from 1."""

    path: Path
    line: int
    fields: dict[str, Any]

    def text(self, *names: str, default: str | None = None) -> str:
        """Returns the text of the first field in `names` that is present.

        A whole number is converted to a text. If none of the fields is present, returns `default`.
        Without a default, raises InvalidArgument if no field is present or if the text is blank.
        With or without a default, raises InvalidArgument if the field is neither a text nor a whole
        number, or if the text contains a lone surrogate, which UTF-8 cannot encode.
        """
        name = next((field for field in names if self.fields.get(field) is not None), None)
        if name is None:
            if default is not None:
                return default
            self.refuse(names[0], "missing", "a text that is not blank")
        value = self.fields[name]
        if isinstance(value, int) and not isinstance(value, bool):
            # In many files, ids are whole numbers. So whole numbers are accepted as texts.
            value = str(value)
        if not isinstance(value, str) or (not value.strip() and default is None):
            self.refuse(name, value, "a text that is not blank")
        if has_lone_surrogate(value):
            self.refuse(name, value, "valid Unicode, without lone surrogates")
        return value or default or ""

    def number(self, name: str, at_least: int, default: int | None = None) -> int:
        """Returns the value of a field, which is a whole number, or `default` if it is missing.

        Raises InvalidArgument if the field is missing and has no default, is not a whole number, or
        is less than `at_least`.
        """
        value = self.fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            self.refuse(name, value, f"a whole number of at least {at_least}")
        return value

    def rows(self, name: str) -> list["Row"]:
        """Returns the objects in a field that is a list of JSON objects.

        Each object is returned as a Row with the path and the line number of this row. Returns an
        empty list if the field is missing. Raises InvalidArgument if the field is not a list of
        objects.
        """
        value = self.fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.refuse(name, value, "a list of objects")
        return [Row(self.path, self.line, item) for item in value]

    @property
    def place(self) -> str:
        """The path of the file and the line number, as they are written in error messages."""
        return f"{self.path}, line {self.line}"

    def refuse(self, field: str, value: object, allowed: str) -> NoReturn:
        """Raises InvalidArgument. Its message names the file, line, field, value and `allowed`."""
        shown = value if value == "missing" else quoted(str(value))
        raise InvalidArgument(
            f"{self.place}: {field} is {shown}; it must be {allowed}", field=field
        )


class RowWriter:
    """Appends objects to a file, one in each line. A context manager.

    When `write` returns, the object is in the file. If the disk is full, the part of the object
    that was written is removed, so that later objects can be appended.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, or creates it. Raises OSError."""
        self._path = path
        self._file = open(path, "ab+", buffering=0, opener=opener)  # noqa: SIM115 - until `close`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        self._file.close()

    def write(self, values: Mapping[str, Any]) -> None:
        """Appends an object; raises OSError, which names the file, if it cannot be written."""
        line = json.dumps(values, ensure_ascii=False).encode() + b"\n"
        end = self._file.seek(0, os.SEEK_END)
        if end and not self._ends_with_line_end():
            line = b"\n" + line
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            self._file.truncate(end)
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def _ends_with_line_end(self) -> bool:
        """Returns True if the last line ends with a line end.

        The last line of a file that was written by hand may have no line end.
        """
        self._file.seek(-1, os.SEEK_END)
        return self._file.read(1) == b"\n"


def json_rows(path: Path) -> Iterator[Row]:
    """Yields the objects of a file as rows; skips blank lines.

    Raises InvalidArgument if the file cannot be read or a line is not a JSON object.
    """
    for line, content in _lines(path):
        if content.strip():
            yield Row(path, line, _object(path, line, content))


def _object(path: Path, line: int, content: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _bad_line(path, line, f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise _bad_line(path, line, "not a JSON object")
    return value


def _bad_line(path: Path, line: int, problem: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path}, line {line}: the line is {problem}; it must be a JSON object", field="line"
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the line number, from 1, and the text of each line of a UTF-8 file."""
    try:
        with path.open("rb") as file:
            for number, content in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
                yield number, content.decode("utf-8-sig" if number == 1 else "utf-8")
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise unreadable(path, f"it is not UTF-8 ({error.reason})") from None


def has_lone_surrogate(text: str) -> bool:
    """Returns True if the text has a surrogate that is not in a pair, so UTF-8 cannot encode it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def unreadable(path: Path, reason: str) -> InvalidArgument:
    """Returns the InvalidArgument that says that a file cannot be used, and why."""
    return InvalidArgument(f"{path}: {reason}", field="path")
