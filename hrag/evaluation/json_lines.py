"""Files with one JSON object in each line: read with errors that name file, line and field, and
continued.
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

MAX_LINE_BYTES = 256 << 20  # The largest document that a service can be set to accept.


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of one row of a file, and where it is."""

    path: Path
    line: int
    fields: dict[str, Any]

    def text(self, *names: str, default: str | None = None) -> str:
        """Returns the first of the named fields that is there, a text.

        Raises InvalidArgument if none is there and there is no default, if it is blank, or if it
        has a lone surrogate, which UTF-8 cannot encode.
        """
        name = next((each for each in names if self.fields.get(each) is not None), None)
        if name is None:
            if default is not None:
                return default
            self.refuse(names[0], "missing", "a text that is not blank")
        value = self.fields[name]
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)  # Ids are often numbers.
        if not isinstance(value, str) or (not value.strip() and default is None):
            self.refuse(name, value, "a text that is not blank")
        if has_lone_surrogate(value):
            self.refuse(name, value, "valid Unicode, without lone surrogates")
        return value or default or ""

    def number(self, name: str, at_least: int, default: int | None = None) -> int:
        """Returns a whole number; `default` if the field is missing and there is one."""
        value = self.fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            self.refuse(name, value, f"a whole number of at least {at_least}")
        return value

    def rows(self, name: str) -> list["Row"]:
        """Returns a list of objects, each as a row of its own; an empty list if it is missing."""
        value = self.fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.refuse(name, value, "a list of objects")
        return [Row(self.path, self.line, each) for each in value]

    @property
    def place(self) -> str:
        """File and line, as errors name them."""
        return f"{self.path}, line {self.line}"

    def refuse(self, field: str, value: object, allowed: str) -> NoReturn:
        """Raises InvalidArgument, which names file, line, field, value and what is allowed."""
        shown = value if value == "missing" else quoted(str(value))
        raise InvalidArgument(
            f"{self.place}: {field} is {shown}; it must be {allowed}", field=field
        )


class RowWriter:
    """Appends objects to a file, each in a line of its own. A context manager.

    An object is in the file when `write` returns. One that does not fit on the disk leaves
    nothing behind, so that the file can be continued.
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
        """Appends an object. Raises OSError, which names the file."""
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
        """False for a file whose last line was written by hand, with no line end."""
        self._file.seek(-1, os.SEEK_END)
        return self._file.read(1) == b"\n"


def json_rows(path: Path) -> Iterator[Row]:
    """Yields the objects of a file; blank lines are skipped.

    Raises InvalidArgument if the file cannot be read or a line is no JSON object.
    """
    for line, content in _lines(path):
        if content.strip():
            yield Row(path, line, _object(path, line, content))


def _object(path: Path, line: int, content: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _bad_line(path, line, f"no JSON ({error})") from None
    if not isinstance(value, dict):
        raise _bad_line(path, line, "no JSON object")
    return value


def _bad_line(path: Path, line: int, problem: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path}, line {line}: the line is {problem}; it must be a JSON object", field="line"
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers, counted from 1."""
    try:
        with path.open("rb") as file:
            for number, content in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
                yield number, content.decode("utf-8-sig" if number == 1 else "utf-8")
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise unreadable(path, f"it is not UTF-8 ({error.reason})") from None


def has_lone_surrogate(text: str) -> bool:
    """True if the text has half of a surrogate pair, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def unreadable(path: Path, why: str) -> InvalidArgument:
    """Returns the error of a file that cannot be read."""
    return InvalidArgument(f"{path}: {why}", field="path")
