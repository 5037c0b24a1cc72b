"""Values on the command line: numbers, true, false, lists and texts, of filters and metadata.

A value of one is written like that of the other, so that what `--meta year=2024` stores is what
`--filter year=2024` finds.
"""

import json
from typing import NoReturn


class Malformed(ValueError):
    """A text on the command line cannot be read; `position` is the character, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_value(text: str, start: int = 0) -> object:
    """Returns the value in `text` from `start` on.

    A number, true or false is one; what begins with a quote or a bracket must be a JSON text,
    list or object; anything else is a text as it stands, without white space around it. Raises
    Malformed.
    """
    written = text[start:].strip()
    if written.startswith(('"', "[", "{")):
        return _json(text, start)
    if written.startswith("'"):
        raise Malformed('a text is quoted with "double quotes"', start)
    try:
        value: object = json.loads(written, parse_constant=_refuse_constant)
    except ValueError:
        return written
    return value if isinstance(value, int | float) else written


def _json(text: str, start: int) -> object:
    """The JSON value at `start`, which nothing may follow."""
    start += len(text[start:]) - len(text[start:].lstrip())
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise Malformed(_explained(error, text[start]), error.pos) from None
    except ValueError as error:
        raise Malformed(f"{error} is not allowed: numbers must be finite", start) from None
    except RecursionError:
        raise Malformed("it is nested too deep", start) from None
    rest = text[end:]
    if rest.strip():
        raise Malformed(
            f"{rest.strip()!r} follows the end of the value", end + len(rest) - len(rest.lstrip())
        )
    return value


def _explained(error: json.JSONDecodeError, opened: str) -> str:
    if opened == '"':
        return f"the quoted text does not end, or is not as JSON has it ({error.msg})"
    return (
        f"what begins with {opened} must be valid JSON ({error.msg}); a text that begins with "
        f'{opened} must be in "double quotes"'
    )
