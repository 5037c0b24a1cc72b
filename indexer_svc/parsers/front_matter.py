"""Separates front matter from a text, and reads its fields.

Front matter is a block of fields at the beginning of a Markdown file: YAML between lines of `---`
(the last may also be `...`), TOML between lines of `+++`, or a JSON object. Before it there may be
a byte order mark, blank lines and comments of HTML. All functions are pure and take linear time.

YAML is read line by line, without a YAML parser, for two reasons. Authors write values that are
not valid YAML (`title: Bees: a guide`), which site generators refuse but a reader understands; and
anchors, tags and the expansion of aliases cannot be abused. Values are texts as they are written:
`2026-05-01`, `1.10` and `true` stay so. Values that are not texts or lists of texts are left out.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any, NamedTuple

from indexer_svc.titles import document_title

# Longer front matter is text. Real front matter has fewer than 100 lines.
_MAX_CHARS = 65_536
_MAX_COMMENT_CHARS = 16_384
# The fields become metadata of the document, which has at most 1,024 values and 64 KiB. These
# limits leave three quarters of it to the client.
_MAX_FIELDS = 100
_MAX_ITEMS = 100
_MAX_VALUES = 256
_MAX_FIELD_CHARS = 16_384
_MAX_NAME_CHARS = 100
_MAX_VALUE_CHARS = 1_000
# tomllib needs time and memory in proportion to the square of the number of dots in a name.
_MAX_TOML_DOTS = 100
# A name is searched in this many characters of a line.
_MAX_NAME_LINE_CHARS = 300
# A name of a field has at most this many words. More words before a colon are a sentence.
_MAX_NAME_SPACES = 3

_START = re.compile(
    rf"\ufeff?(?:\s++|<!--(?:(?!-->).){{0,{_MAX_COMMENT_CHARS}}}-->)*"
    r"(?P<fence>---[ \t]*(?:\r\n?|\n)|\+\+\+[ \t]*(?:\r\n?|\n)|(?=\{))",
    re.DOTALL,
)
_LINE = re.compile(r"(?P<text>[^\r\n]*)(?:\r\n?|\n|\Z)")
_BLANK_LINES = re.compile(r"(?:[^\S\r\n]*(?:\r\n?|\n))+")
_VISIBLE = re.compile("[^\\s\u200b\ufeff]")
_FENCES = {"---": ("---", "..."), "+++": ("+++",)}
_NAME = re.compile(
    r"""(?P<name>"[^"\n]*"|'[^'\n]*'|[\w$@.](?:[^\s:]|:(?=\S))*(?:[ \t]+(?:[^\s:]|:(?=\S))+)*?)"""
    r"[ \t]*:(?=\s|$)"
)
_ITEM = re.compile(r"\s*-(?:\s+(?P<value>.*)|)$")
_NESTED_ITEM = re.compile(r"""(?:"[^"]*"|'[^']*'|[\w$@.-]+)[ \t]*:(?:\s|$)|-\s""")
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_SINGLE_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_BLOCK_SCALAR = re.compile(r"[|>][-+\d]*(?: |$)")
_COMMENT = re.compile(r"(?:^|\s)#.*", re.DOTALL)
# Matches values that are not plain scalars: collections, aliases, anchors, tags, null.
_NOT_PLAIN = re.compile(r"[\[\]{},&*!|>%@`]|[-?:](?:\s|$)|(?:~|null|Null|NULL)$|$")
_FLOW_ITEM = re.compile(
    r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,\[\]{}"'][^,\[\]{}]*|)\s*(,|$)"""
)

Fields = Mapping[str, str | list[str]]
_Values = list[tuple[str, str | list[str]]]
"""The names of fields with their values. A name may occur several times."""


class FrontMatter(NamedTuple):
    """The fields of front matter, and the offset at which the text after it begins.

    `title` is the value of the field `title`, or empty. `fields` has the other fields.
    """

    title: str
    fields: Fields
    end: int


NO_FRONT_MATTER = FrontMatter("", {}, 0)


def front_matter_of(text: str) -> FrontMatter:
    """Returns the front matter of a text; NO_FRONT_MATTER if it has none.

    If the text has nothing but front matter, this is its text, so the offset of the end is 0.
    """
    start = _START.match(text)
    if start is None:
        return NO_FRONT_MATTER
    fence = start["fence"].strip()
    read = _enclosed(text, start.end(), fence) if fence else _json(text, start.end())
    if read is None:
        return NO_FRONT_MATTER
    values, end = read
    blank = _BLANK_LINES.match(text, end)
    end = blank.end() if blank else end
    title = next((value for name, value in values if name.casefold() == "title"), "")
    fields = _bounded((name, value) for name, value in values if name.casefold() != "title")
    has_text = _VISIBLE.search(text, end) is not None
    return FrontMatter(
        document_title(title) if isinstance(title, str) else "", fields, end if has_text else 0
    )


def _enclosed(text: str, start: int, fence: str) -> tuple[_Values, int] | None:
    """Returns the fields between two fences, and the offset after the second one.

    `start` is the offset after the first fence. Returns None if there is no second fence, or if the
    lines between them are not front matter.
    """
    lines: list[str] = []
    at = start
    while at < len(text) and at - start < _MAX_CHARS:
        line = _LINE.match(text, at)
        if line is None:
            break
        at = line.end()
        if line["text"].rstrip() in _FENCES[fence]:
            if fence == "+++":
                return _toml(lines), at
            return (_yaml(lines), at) if _is_yaml(lines) else None
        lines.append(line["text"])
    return None


def _toml(lines: Sequence[str]) -> _Values:
    """Returns the fields of TOML; an empty list if it is not valid, or a line has many dots."""
    if any(line.count(".") > _MAX_TOML_DOTS for line in lines):
        return []
    try:
        return _texts_of(tomllib.loads("\n".join(lines)))
    except (ValueError, RecursionError):
        return []


def _json(text: str, start: int) -> tuple[_Values, int] | None:
    """Returns the fields of a JSON object that ends with its line, and the offset after it."""
    try:
        value, length = json.JSONDecoder().raw_decode(text[start : start + _MAX_CHARS])
    except (ValueError, RecursionError):
        return None
    line = _LINE.match(text, start + length)
    if line is None or line["text"].strip() or not isinstance(value, dict) or not value:
        return None
    return _texts_of(value), line.end()


def _texts_of(values: Mapping[str, Any]) -> _Values:
    """Returns the fields of a parsed object whose values are scalars or lists of scalars."""
    texts: _Values = []
    for name, value in values.items():
        if isinstance(value, list):
            items = [text for text in map(_scalar, value) if text]
            if items and len(items) == len(value):
                texts.append((name, items))
        elif text := _scalar(value):
            texts.append((name, text))
    return texts


def _scalar(value: Any) -> str:
    """Returns a scalar as text; an empty text for null, a list or an object."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, str | int | float) else ""


def _is_yaml(lines: Sequence[str]) -> bool:
    """Returns True if lines between two fences are a mapping, as far as its lines show.

    The first line that is not blank or a comment must have the name of a field. Without blank lines
    this is enough. With blank lines, each line must be blank, a comment, a field, indented below a
    field, or an item of a list below a field. Otherwise a thematic break and the prose below it
    would be front matter.
    """
    filled = [line for line in lines if line.strip() and not line.startswith("#")]
    if not filled or _field(filled[0]) is None:
        return False
    if all(line.strip() for line in lines):
        return True
    may_continue = takes_items = False
    for line in filled:
        field = _field(line)
        if field is not None:
            may_continue = True
            takes_items = not _COMMENT.sub("", field[1]).strip()
        elif not (may_continue and (line[0] in " \t" or (takes_items and _ITEM.match(line)))):
            return False
    return True


def _field(line: str) -> tuple[str, str] | None:
    """Returns the name and the value of a field on one line, or None if it is no field."""
    match = _NAME.match(line[:_MAX_NAME_LINE_CHARS])
    if match is None or match["name"].count(" ") > _MAX_NAME_SPACES:
        return None
    name = match["name"]
    return (name[1:-1] if name[0] in "\"'" else name), line[match.end() :]


def _yaml(lines: Sequence[str]) -> _Values:
    """Returns the fields of a mapping that is written line by line."""
    values: _Values = []
    names = set()
    for name, value_lines in _fields(lines):
        value = _value(value_lines)
        if value and name not in names:
            names.add(name)
            values.append((name, value))
    return values


def _fields(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each field and the lines of its value."""
    name, value_lines = "", list[str]()
    for line in lines:
        is_inside = not line.strip() or line[0] in " \t" or _ITEM.match(line)
        field = None if is_inside else _field(line)
        if field is not None:
            if name:
                yield name, value_lines
            name, value_lines = field[0], [field[1]]
        elif name and not line.startswith("#"):
            value_lines.append(line)
    if name:
        yield name, value_lines


def _value(lines: Sequence[str]) -> str | list[str]:
    """Returns the value of a field; empty if it is not a text or a list of texts."""
    first = lines[0].strip()
    below = [line for line in lines[1:] if line.strip()]
    if _COMMENT.sub("", first).strip():
        text = " ".join(" ".join([first, *below]).split())
        return _flow_list(text) if first[0] == "[" else _scalar_text(text)
    below = [line for line in below if not line.lstrip().startswith("#")]
    items = [_ITEM.match(line) for line in below]
    if not below or not all(items):
        # The lines below are an object, or an item has several lines.
        return ""
    texts = [(item["value"] or "").strip() for item in items if item is not None]
    if any(_NESTED_ITEM.match(text) for text in texts):
        return ""
    return list(filter(None, map(_scalar_text, filter(None, texts))))


def _flow_list(text: str) -> list[str]:
    """Returns the texts of a list in square brackets; an empty list if it contains other values."""
    end = text.rfind("]")
    if end < 0 or _COMMENT.sub("", text[end + 1 :]).strip():
        return []
    items: list[str] = []
    at, inner = 1, text[:end]
    while at < end:
        item = _FLOW_ITEM.match(inner, at)
        if item is None:
            return []
        if item[1].strip() and (scalar := _scalar_text(item[1].strip())):
            items.append(scalar)
        at = item.end()
    return items


def _scalar_text(value: str) -> str:
    """Returns the text of a YAML scalar that has been folded to one line."""
    if quoted := _DOUBLE_QUOTED.match(value):
        return _unescape(quoted[0])
    if quoted := _SINGLE_QUOTED.match(value):
        return quoted[1].replace("''", "'")
    if block := _BLOCK_SCALAR.match(value):
        return value[block.end() :]
    plain = _COMMENT.sub("", value)
    return "" if _NOT_PLAIN.match(plain) or plain[0] in "\"'" else plain


def _unescape(quoted: str) -> str:
    """Returns the text of a double-quoted scalar.

    If it has escapes that JSON does not have, the text is returned as it is written.
    """
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]


def _bounded(values: Iterable[tuple[str, str | list[str]]]) -> Fields:
    """Returns the first fields within the limits of this module. UTF-8 can encode their texts."""
    fields: dict[str, str | list[str]] = {}
    count = chars = 0
    for name, value in values:
        if len(name) > _MAX_NAME_CHARS or name in fields or not name.strip():
            continue
        texts = [_clean(text) for text in ([value] if isinstance(value, str) else value)]
        texts = list(filter(None, texts))[:_MAX_ITEMS]
        count += len(texts)
        chars += len(name) + sum(map(len, texts))
        if len(fields) == _MAX_FIELDS or count > _MAX_VALUES or chars > _MAX_FIELD_CHARS:
            break
        if texts:
            fields[_clean(name)] = texts[0] if isinstance(value, str) else texts
    return fields


def _clean(text: str) -> str:
    """Returns a text without lone surrogates and NUL, cut to _MAX_VALUE_CHARS characters."""
    cut = text[:_MAX_VALUE_CHARS].replace("\0", "")
    return cut.encode("utf-8", "ignore").decode().strip()
