"""Parses values on the command line: numbers, true, false, lists and texts.

Filters and metadata share this syntax. So `--filter year=2024` finds what `--meta year=2024`
has stored.
"""

import json
from typing import NoReturn


class Malformed(ValueError):
    """A text on the command line cannot be parsed.

    `position` is the index of the character at which parsing failed, from 0.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_value(text: str, start: int = 0) -> object:
    """Returns the value that `text` contains from the index `start` to its end.

    A value that begins with a quotation mark or a bracket must be a JSON text, list or object.
    A number, true or false is parsed as in JSON. Anything else is a text, without the white
    space around it. Raises Malformed.
    """
    raw = text[start:].strip()
    if raw.startswith(('"', "[", "{")):
        return _json(text, start)
    if raw.startswith("'"):
        raise Malformed('a text is quoted with "double quotes"', start)
    try:
        value: object = json.loads(raw, parse_constant=_refuse_constant)
    except ValueError:
        return raw
    return value if isinstance(value, int | float) else raw


def _json(text: str, start: int) -> object:
    """Returns the JSON value at `start`. Raises Malformed, also if anything follows the value."""
    start += len(text[start:]) - len(text[start:].lstrip())
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise Malformed(_explain(error, text[start]), error.pos) from None
    except ValueError as error:
        raise Malformed(f"{error} is not allowed: numbers must be finite", start) from None
    except RecursionError:
        raise Malformed("it is nested too deep", start) from None
    excess = text[end:]
    if excess.strip():
        raise Malformed(
            f"{excess.strip()!r} follows the end of the value",
            end + len(excess) - len(excess.lstrip()),
        )
    return value


def _explain(error: json.JSONDecodeError, first: str) -> str:
    if first == '"':
        return f"the quoted text does not end, or it is not valid JSON ({error.msg})"
    return (
        f"a value that begins with {first} must be valid JSON ({error.msg}); a text that begins "
        f'with {first} must be in "double quotes"'
    )
