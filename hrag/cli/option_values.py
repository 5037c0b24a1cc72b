"""Parses the values of options: conditions such as `year>=2024`, and metadata such as `year=2024`.

Conditions and metadata share the syntax of a value: a number, true, false, a list or a text. So
`--filter year=2024` finds what `--meta year=2024` has stored.

If the text of an option looks like a mistake, it is refused. The error names the position of the
mistake and what is allowed. If the text were accepted, a condition could silently match nothing, or
everything.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from hrag.values.filters import (
    DOCUMENT_FIELDS,
    METADATA,
    MISSING_KEY,
    AllOf,
    Bound,
    Exists,
    Filter,
    FilterValue,
    Match,
    NoneOf,
    Range,
    field_named,
    timestamp_of,
)

_FILTER_SYNTAX = (
    "KEY=VALUE, KEY!=VALUE, KEY>=VALUE (also >, <=, <), KEY "
    f"(is present) or !KEY (is absent). KEY is {', '.join(DOCUMENT_FIELDS)} or a metadata key. "
    'VALUE is a number, true, false, a date or text. Put a text in "double quotes" if it '
    'looks like a number, true, false or a date; ["a","b"] matches a or b. Repeat the option to '
    "combine conditions: all must match."
)
FILTER_HELP = f"Search only documents that match: {_FILTER_SYNTAX}"
WHERE_HELP = f"Only documents that match: {_FILTER_SYNTAX}"
VALUE_HELP = (
    'VALUE is a number, true, false or text. Put a text in "double quotes" if it looks like a '
    'number, true or false; ["a","b"] and {"a": 1} are JSON.'
)
FILTER_OPTION = "--filter"
WHERE_OPTION = "--where"
META_OPTION = "--meta"

_FILTER_SIGN = re.compile(r"!=|>=|<=|=|>|<")
_BOUND_NAMES = {">=": "at_least", ">": "above", "<=": "at_most", "<": "below"}
_SHOWN_CHARS = 120


class Malformed(ValueError):
    """A text on the command line cannot be parsed.

    `position` is the index of the character at which parsing failed, from 0.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def parse_filters(conditions: Sequence[str] | None, option: str = FILTER_OPTION) -> Filter | None:
    """Returns the filter that requires all `conditions`. Returns None if there are no conditions.

    Raises typer.BadParameter for a condition that cannot be parsed. The error names the position
    of the wrong character, counted from 1, and what is allowed.
    """
    filters = []
    for text in conditions or ():
        try:
            filters.append(_parse_condition(text))
        except Malformed as error:
            position = f"at character {error.position + 1}: " if text else ""
            shown = repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")
            raise typer.BadParameter(f"{shown}: {position}{error}", param_hint=option) from None
    return AllOf(tuple(filters)) if filters else None


def _parse_condition(text: str) -> Filter:
    sign_match = _FILTER_SIGN.search(text)
    if sign_match is None:
        return _parse_presence(text)
    field = _filter_field(text[: sign_match.start()], 0)
    sign, start = sign_match[0], sign_match.end()
    start += len(text[start:]) - len(text[start:].lstrip())
    if start == len(text):
        raise Malformed(f'no value follows {sign}; an empty text is ""', start)
    if text[start] in "=<>":
        raise Malformed(
            f"{sign}{text[start]} is not a comparison; it must be = != >= > <= or <, and a text "
            f'that begins with {text[start]} must be in "double quotes"',
            start,
        )
    if sign in _BOUND_NAMES:
        return Range(field, **{_BOUND_NAMES[sign]: _parse_bound(text, start)})
    match = Match(field, _parse_filter_values(text, start, is_text=field in DOCUMENT_FIELDS))
    return NoneOf((match,)) if sign == "!=" else match


def _parse_presence(text: str) -> Filter:
    negated = text.startswith("!")
    exists = Exists(_filter_field(text.removeprefix("!"), int(negated)))
    return NoneOf((exists,)) if negated else exists


def _filter_field(key: str, start: int) -> str:
    """Returns the filter field for a key of a condition: for `year`, this is `metadata.year`.

    `start` is the position of `key` in the condition. Raises Malformed if `key` is empty or
    contains ! or a quotation mark.
    """
    forbidden = re.search(r"[!\"]", key)
    if forbidden is not None:
        raise Malformed(
            f"{forbidden[0]} is not allowed in a key; conditions are KEY=VALUE, KEY!=VALUE, "
            "KEY>=VALUE, KEY or !KEY",
            start + forbidden.start(),
        )
    key = key.strip()
    if key in ("", METADATA):
        raise Malformed(MISSING_KEY, start + len(key))
    return field_named(key)


def _parse_filter_values(text: str, start: int, *, is_text: bool) -> tuple[FilterValue, ...]:
    parsed = parse_value(text, start)
    values = parsed if isinstance(parsed, list) else [parsed]
    if not values or not all(isinstance(value, str | int | float) for value in values):
        raise Malformed("a list must contain numbers, true, false or texts", start)
    if is_text and not isinstance(parsed, str | list):
        return (text[start:].strip(),)
    return tuple(values)


def _parse_bound(text: str, start: int) -> Bound:
    parsed = parse_value(text, start)
    if isinstance(parsed, int | float) and not isinstance(parsed, bool):
        return parsed
    timestamp = timestamp_of(parsed) if isinstance(parsed, str) else None
    if timestamp is None:
        raise Malformed(
            f"{text[start:]!r} is neither a number nor a date such as 2026-11-21", start
        )
    return timestamp


def parse_metadata(pairs: Sequence[str] | None, option: str = META_OPTION) -> dict[str, Any]:
    """Parses texts of the form `KEY=VALUE`; returns a dictionary from each key to its value.

    Raises typer.BadParameter if a text cannot be parsed or a key occurs twice.
    """
    metadata: dict[str, Any] = {}
    for text in pairs or ():
        key, value = _parse_pair(text, option)
        if key in metadata:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint=option)
        metadata[key] = value
    return metadata


def _parse_pair(text: str, option: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
    if not value.strip():
        raise typer.BadParameter(
            f'{text!r}: no value follows =; an empty text is ""', param_hint=option
        )
    try:
        return key.strip(), parse_value(text, len(key) + 1)
    except Malformed as error:
        raise typer.BadParameter(
            f"{text!r}: at character {error.position + 1}: {error}", param_hint=option
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_value(text: str, start: int = 0) -> object:
    """Returns the value that `text` contains from the index `start` to its end.

    A value that begins with ", [ or { must be a JSON text, list or object. A number, true or false
    is parsed as in JSON. Anything else is a text; the white space around it is removed. Raises
    Malformed if the JSON is invalid, or if the value begins with a single quotation mark.
    """
    raw = text[start:].strip()
    if raw.startswith(('"', "[", "{")):
        return _parse_json(text, start)
    if raw.startswith("'"):
        raise Malformed('a text is quoted with "double quotes"', start)
    try:
        value: object = json.loads(raw, parse_constant=_refuse_constant)
    except ValueError:
        return raw
    return value if isinstance(value, int | float) else raw


def _parse_json(text: str, start: int) -> object:
    """Returns the JSON value that `text` contains from the index `start`.

    Raises Malformed if there is no valid JSON value, or if anything but white space follows it.
    """
    start += len(text[start:]) - len(text[start:].lstrip())
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise Malformed(_explain_json_error(error, text[start]), error.pos) from None
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


def _explain_json_error(error: json.JSONDecodeError, first: str) -> str:
    if first == '"':
        return f"the quoted text does not end, or it is not valid JSON ({error.msg})"
    return (
        f"a value that begins with {first} must be valid JSON ({error.msg}); a text that begins "
        f'with {first} must be in "double quotes"'
    )
