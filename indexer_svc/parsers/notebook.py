"""Parses Jupyter notebooks: cells as Markdown and code, with the beginning of their outputs.

A notebook is JSON (nbformat 3 and 4). The JSON is read directly. The library nbformat would only
add a check against a schema, and take forty times as long.

Outputs that are text are kept: results, tables as text, and what a cell prints. An output of more
than _MAX_OUTPUT_LINES lines or _MAX_OUTPUT_CHARS characters is cut, because it is often a log or a
dump of data. Pictures, widgets, warnings and tracebacks are left out; the error itself is kept. The
report counts the outputs that were left out or cut.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from hrag.values.errors import UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.markdown import parse_markdown
from indexer_svc.parsers.package import readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_lines import utf8_text
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_KIND = "a notebook (IPYNB)"
_FIELD = "content"
# A table of ten rows with its header and its count of rows, as pandas prints it, fits.
_MAX_OUTPUT_LINES = 15
_MAX_OUTPUT_CHARS = 1_000
_LEVELS = tuple("123456")
_TEXT_TYPES = ("text/markdown", "text/plain", "text")
# Programs color their output, and move the cursor, by these sequences (ECMA-48).
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]{0,30}[A-Za-z]")
# The text of an output that is a picture or an object of a library, for example <Figure size 2x1>.
_OBJECT = re.compile(r"<[^<>\n]{1,300}>")
_ENCODED_PICTURE = re.compile(r"!\[[^\]\n]{0,300}\]\(data:[^()\s]*\)")


def parse_notebook(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a notebook in UTF-8, its headings and its title.

    The title is the one in its metadata, or else its first heading of level 1. Raises
    UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        notebook = json.loads(utf8_text(content), parse_int=_integer)
        writer = TextWriter(max_text_bytes)
        for cell in _cells(notebook):
            _write_cell(cell, writer, max_text_bytes)
        metadata = notebook.get("metadata")
        title = metadata.get("title") if isinstance(metadata, dict) else ""
        title = metadata_title(_writable(title)) if isinstance(title, str) else ""
        return writer.parsed(title or writer.first_heading)


def _integer(digits: str) -> int:
    """Returns the number of the first digits. Python refuses to convert thousands of digits."""
    return int(digits[:9].rstrip("-") or 0)


def _cells(notebook: Any) -> Iterator[dict[str, Any]]:
    """Yields the cells of a notebook. Raises UnreadableDocument if there is no list of cells."""
    if not isinstance(notebook, dict):
        raise UnreadableDocument(f"content is not {_KIND}: it is not an object", field=_FIELD)
    sheets = notebook.get("worksheets")  # nbformat 3 has its cells in sheets.
    sources = sheets if isinstance(sheets, list) and sheets else [notebook]
    cell_lists = [sheet.get("cells") for sheet in sources if isinstance(sheet, dict)]
    if not all(isinstance(cells, list) for cells in cell_lists):
        raise UnreadableDocument(f"content is not {_KIND}: it has no cells", field=_FIELD)
    for cells in cell_lists:
        yield from (cell for cell in cells or () if isinstance(cell, dict))


def _write_cell(cell: dict[str, Any], writer: TextWriter, max_text_bytes: int) -> None:
    kind = cell.get("cell_type")
    source = _text(cell.get("source", cell.get("input")))
    if kind == "markdown":
        plain = _ENCODED_PICTURE.sub("", source)
        if plain != source:
            writer.leave_out(LeftOutKind.ATTACHMENT, "a picture in a cell")
        writer.include(parse_markdown(plain.encode(), max_text_bytes))
    elif kind == "heading":
        level = str(cell.get("level"))
        writer.heading(int(level) if level in _LEVELS else 1, source)
    elif kind == "code":
        writer.code(source)
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, dict):
                _write_output(output, writer)
    else:
        writer.paragraph(source)


def _write_output(output: dict[str, Any], writer: TextWriter) -> None:
    text = _TERMINAL_CODES.sub("", _output_text(output)).strip("\n")
    if not text.strip() or _OBJECT.fullmatch(text.strip()):
        writer.leave_out(LeftOutKind.OUTPUT, text or str(output.get("output_type", ""))[:100])
        return
    shown = _shortened(text)
    writer.code(shown)
    if shown != text:
        writer.leave_out(LeftOutKind.OUTPUT, text[len(shown) :])


def _output_text(output: dict[str, Any]) -> str:
    """Returns the text of an output, before it is cut; empty if it has none that is kept."""
    kind = output.get("output_type")
    if kind in ("error", "pyerr"):
        return f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
    if kind == "stream":
        is_warning = output.get("name", output.get("stream")) == "stderr"
        return "" if is_warning else _text(output.get("text"))
    data = output.get("data", output)
    if not isinstance(data, dict):
        return ""
    return next(filter(None, (_text(data.get(name)) for name in _TEXT_TYPES)), "")


def _shortened(text: str) -> str:
    """Returns the first lines of an output, at most _MAX_OUTPUT_CHARS characters."""
    lines = text[: _MAX_OUTPUT_CHARS + 1].split("\n")
    if len(text) > _MAX_OUTPUT_CHARS and len(lines) > 1:
        lines = lines[:-1]  # The last line is cut.
    return "\n".join(lines[:_MAX_OUTPUT_LINES])[:_MAX_OUTPUT_CHARS]


def _text(value: Any) -> str:
    """Returns a text of nbformat, which is a string or a list of lines with their ends."""
    if isinstance(value, list):
        value = "".join(line for line in value if isinstance(line, str))
    return _writable(value) if isinstance(value, str) else ""


def _writable(text: str) -> str:
    """Returns a text without lone surrogates, which escapes in JSON can write."""
    return text.encode("utf-8", "replace").decode()
