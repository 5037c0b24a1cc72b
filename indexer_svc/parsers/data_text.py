"""Writes nested data, for example of JSON or XML, as readable lines with their paths.

A value is a text, a list of values, or a record: names with values. Each text becomes a line that
begins with its path, for example `orders[3].customer.name: Ann`. So a passage that contains a few
lines can be understood without the rest. Indexes count from 0.

A list of flat records becomes a table, and a list of short texts a single line. A text of several
lines follows its path on separate lines. The parts of the data become sections: each list or
record at the first two levels, and each record deeper down that has a title. The section's title is
the title in the record, or else the path.

Nothing here recurses. The depth of values is limited, because every line repeats the path.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hrag.values.document_limits import MAX_DATA_DEPTH
from hrag.values.errors import UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.text_lines import with_line_feeds
from indexer_svc.parsers.text_writer import TextWriter

_FIELD = "content"
_SECTION_DEPTH = 2  # Lists and records at these levels are sections, also if they have no title.
_TITLED_DEPTH = 6  # Records with a title are sections down to this level.
_TITLES = ("title", "heading", "head")
_NAMES = (*_TITLES, "name", "label")
# A table has at least two rows and two columns. In a table of many columns, or with long texts, a
# row cannot be read at a glance. Then lines with paths are clearer.
_MIN_ROWS, _MIN_COLUMNS = 2, 2
_MAX_COLUMNS = 40
_MAX_CELL_CHARS = 300
_MIN_FILLED_SHARE = 0.5
_MAX_LISTED_CHARS = 100
_MAX_LISTED_LINE_CHARS = 1_000
# A text of this length that has only characters of base64 is a file or a picture. No word and no
# identifier is so long. Its lines, if there are several, have the length that base64 has in mails.
_MIN_ENCODED_CHARS = 512
_ENCODED_FILE = re.compile(
    r"(?:data:[^,\s]{0,200},)?"
    r"(?:[A-Za-z0-9+/_=%-]{512,}+|(?:[A-Za-z0-9+/]{60,76}+\n)++[A-Za-z0-9+/=]{0,76})"
)
_PLAIN_NAME = re.compile(r"[^.\[\]:\"\s@][^.\[\]:\"\n\r\t]{0,200}(?<! )|[^.\[\]:\"\s@]")
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_BUFFERED_LINES = 1_000  # The lines of one paragraph. A page of print has 50.


@dataclass(slots=True)
class Record:
    """Names with values, in order. A name may occur several times.

    Each name is a step of a path, as `step` returns it. The step "" stands for the record's own
    text. If `is_ordered` is False, the order means nothing, so that texts may be written before
    the lists and records around them.
    """

    entries: list[tuple[str, "Value"]]
    is_ordered: bool = True


Value = str | list["Value"] | Record


def check_depth(depth: int) -> None:
    """Raises UnreadableDocument if values are nested deeper than MAX_DATA_DEPTH."""
    if depth > MAX_DATA_DEPTH:
        raise UnreadableDocument(
            f"content is nested deeper than {MAX_DATA_DEPTH} levels; at most {MAX_DATA_DEPTH} are "
            "allowed",
            field=_FIELD,
            limit="data_depth",
        )


def step(name: str) -> str:
    """Returns the step of a path for a name. A name with signs of paths is put in quotes."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    quoted = " ".join(name.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'["{quoted}"]'


def write_data(value: Value, path: str, writer: TextWriter) -> None:
    """Writes a value. `path` is the path of the whole value, which may be empty.

    Raises UnreadableDocument if values are nested deeper than MAX_DATA_DEPTH, or TooLarge.
    """
    _DataWriter(writer).write(value, path)


def data_title(value: Value) -> str:
    """Returns the title that a record or its only record has; empty if it has none."""
    for _ in range(2):
        if not isinstance(value, Record):
            return ""
        if title := _named(value, _NAMES):
            return title
        records = [entry for _, entry in value.entries if isinstance(entry, Record)]
        if len(records) != 1:
            return ""
        value = records[0]
    return ""


class _DataWriter:
    """Collects lines into paragraphs, which end before each section, table and record of a list."""

    def __init__(self, writer: TextWriter) -> None:
        self._writer = writer
        self._lines: list[str] = []

    def write(self, value: Value, path: str) -> None:
        """Writes a value and everything in it, in depth-first order."""
        open_values: list[Iterator[tuple[str, Value]]] = [iter([(path, value)])]
        while open_values:
            child = next(open_values[-1], None)
            if child is None:
                open_values.pop()
                continue
            inner = self._begin(*child, depth=len(open_values) - 1)
            if inner is not None:
                check_depth(len(open_values))
                open_values.append(inner)
        self._flush()

    def _begin(self, path: str, value: Value, *, depth: int) -> Iterator[tuple[str, Value]] | None:
        """Writes a text or a table; for another value, returns its parts with their paths."""
        if isinstance(value, str):
            self._write_text(path, value)
            return None
        if (line := _listed(value)) is not None:
            self._write_text(path, line)
            return None
        self._begin_section(path, value, depth)
        if isinstance(value, Record):
            return _entries(value, path)
        if (rows := _table(value)) is not None:
            self._flush()
            if path and not 0 < depth <= _SECTION_DEPTH:
                self._writer.paragraph(_writable(f"{path}:"))
            self._writer.table(rows, header_rows=1)
            return None
        return ((f"{path}[{index}]", item) for index, item in enumerate(value))

    def _begin_section(self, path: str, value: list[Value] | Record, depth: int) -> None:
        """Begins a section, or else a paragraph, for a list or record."""
        title = ""
        if isinstance(value, Record):
            title = _named(value, _NAMES if depth <= _SECTION_DEPTH else _TITLES)
        if 0 < depth <= (_TITLED_DEPTH if title else _SECTION_DEPTH):
            self._flush()
            self._writer.heading(depth, title or _writable(path))
        elif path.endswith("]"):
            self._flush()

    def _write_text(self, path: str, text: str) -> None:
        if len(text) >= _MIN_ENCODED_CHARS or "\n" in text or "\r" in text:
            self._write_long_text(path, with_line_feeds(text).strip())
            return
        line = f"{path}: {text}" if path else text
        self._lines.append(line.rstrip())
        if len(self._lines) >= _BUFFERED_LINES:
            self._flush()

    def _write_long_text(self, path: str, text: str) -> None:
        if _is_encoded_file(text):
            name = _writable(path)
            self._writer.leave_out(LeftOutKind.ATTACHMENT, f"{name} ({len(text)} characters)")
            return
        self._flush()
        separator = "\n" if "\n" in text else " "
        self._lines.append(f"{path}:{separator}{text}" if path else text)
        self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._writer.paragraph(_writable("\n".join(self._lines)))
            self._lines.clear()


def _entries(record: Record, path: str) -> Iterator[tuple[str, Value]]:
    """Yields the values of a record with their paths.

    If their order means nothing, texts come first, so that none is in the section of another value.
    """
    entries = record.entries
    if not record.is_ordered:
        entries = sorted(entries, key=lambda entry: _listed(entry[1]) is None)
    for name, value in entries:
        yield _joined_path(path, name), value


def _joined_path(path: str, name: str) -> str:
    """Returns the path of a value in a record; `name` is the step that leads to it."""
    if not path or not name or name[0] in "[@":
        return path + name
    return f"{path}.{name}"


def _named(record: Record, names: Sequence[str]) -> str:
    """Returns the text of a record under the first of `names` that it has; empty if it has none.

    A name may have the prefix of a namespace.
    """
    texts = {
        name.lower().rpartition(":")[2]: value
        for name, value in reversed(record.entries)
        if isinstance(value, str) and value.strip()
    }
    return next((_writable(texts[name]) for name in names if name in texts), "")


def _listed(value: Value) -> str | None:
    """Returns the text of a value that fits on a line: a text, or a list of short texts.

    Returns None for another value.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Record):
        return None if value.entries else ""
    chars = 0
    for text in value:
        if not isinstance(text, str) or len(text) > _MAX_LISTED_CHARS or "\n" in text:
            return None
        chars += len(text) + 2
        if chars > _MAX_LISTED_LINE_CHARS:
            return None
    texts = [text for text in value if isinstance(text, str)]
    return ("; " if any("," in text for text in texts) else ", ").join(texts)


def _table(values: list[Value]) -> list[list[str]] | None:
    """Returns the rows of a table for a list of flat records, with the header first.

    Returns None if some value is not flat, has a name twice or a long text, or if too many names
    occur in few records only.
    """
    if len(values) < _MIN_ROWS:
        return None
    columns: dict[str, int] = {}
    rows: list[dict[str, str]] = []
    filled = 0
    for value in values:
        row = _row(value)
        if row is None:
            return None
        for name in row:
            columns.setdefault(name, len(columns))
        rows.append(row)
        filled += len(row)
        if len(columns) > _MAX_COLUMNS:
            return None
    if len(columns) < _MIN_COLUMNS or filled < _MIN_FILLED_SHARE * len(rows) * len(columns):
        return None
    names = list(columns)
    return [
        [_writable(name) or "text" for name in names],
        *([row.get(n, "") for n in names] for row in rows),
    ]


def _row(value: Value) -> dict[str, str] | None:
    """Returns the texts of a flat record by their names; None for another value."""
    if not isinstance(value, Record) or not value.entries:
        return None
    row: dict[str, str] = {}
    for name, entry in value.entries:
        text = _listed(entry)
        if text is None or name in row or len(text) > _MAX_CELL_CHARS or "\n" in text:
            return None
        row[name] = _writable(text)
    return row


def _writable(text: str) -> str:
    """Returns a text with U+FFFD for each NUL and lone surrogate, which escapes can write."""
    return _UNWRITABLE.sub("\ufffd", text)


def _is_encoded_file(text: str) -> bool:
    """Returns True if a text is a file or picture in base64, on one line or on lines of base64."""
    if len(text) < _MIN_ENCODED_CHARS:
        return False
    return _ENCODED_FILE.fullmatch(text) is not None
