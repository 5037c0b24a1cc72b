"""Parses JSON (RFC 8259) and JSON Lines into readable lines with their paths.

Numbers stay as they are written, and names that occur twice in an object are all kept. A file of
several values, one after another, is read as an array of them. Nothing here recurses except the
decoder of the standard library, which stops at Python's limit.
"""

import json
import re
from typing import Any

from hrag.values.errors import UnreadableDocument
from indexer_svc.parsers.data_text import Record, Value, data_title, step, write_data
from indexer_svc.parsers.package import readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_lines import utf8_text
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_KIND = "JSON"
_FIELD = "content"
_WHITE_SPACE = re.compile(r"[ \t\n\r\x1e]*")  # U+001E stands before each value of a JSON sequence.


def parse_json(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the values of UTF-8 JSON as lines, tables and sections, as `write_data` does.

    The title is the text under `title` or `name` at the top. Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        value = _value(_decode_all(utf8_text(content)))
        writer = TextWriter(max_text_bytes)
        write_data(value, "", writer)
        return writer.parsed(metadata_title(data_title(value)))


def _record(pairs: list[tuple[str, Any]]) -> Record:
    return Record([(step(name), _value(value)) for name, value in pairs], is_ordered=False)


def _value(decoded: Any) -> Value:
    """Returns a decoded value, with the words of JSON for true, false and null.

    The values in an array are replaced in place. Those in an object have been replaced already,
    because the decoder calls `_record` for the inner object first.
    """
    if decoded is None or isinstance(decoded, bool):
        return json.dumps(decoded)
    if isinstance(decoded, list):
        _replace_words(decoded)
    value: Value = decoded
    return value


def _replace_words(values: list[Any]) -> None:
    """Replaces true, false and null in a list and in the lists inside it."""
    lists = [values]
    while lists:
        items = lists.pop()
        for index, item in enumerate(items):
            if item is None or isinstance(item, bool):
                items[index] = json.dumps(item)
            elif isinstance(item, list):
                lists.append(item)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_record, parse_float=str, parse_int=str, parse_constant=str
)


def _decode_all(text: str) -> Any:
    """Returns the value of a text, or a list of its values if there are several.

    Raises UnreadableDocument if the text is blank or not JSON.
    """
    values = []
    position = _skip_white_space(text, 0)
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise UnreadableDocument(
                f"content is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
                field=_FIELD,
            ) from None
        values.append(value)
        position = _skip_white_space(text, position)
    if not values:
        raise UnreadableDocument("content has no JSON value", field=_FIELD)
    return values[0] if len(values) == 1 else values


def _skip_white_space(text: str, start: int) -> int:
    match = _WHITE_SPACE.match(text, start)
    return start if match is None else match.end()
