"""Parses the conditions of `--filter` and `--where`, for example `lang=en` or `year>=2024`.

Text that looks like a mistake is refused; the error names its position and what is allowed. If
it were accepted, the condition could silently match nothing, or everything.
"""

import re
from collections.abc import Sequence

import typer

from hrag.cli.options.values import Malformed, parse_value
from hrag.values.filters import (
    DOCUMENT_ID,
    METADATA,
    SOURCE,
    TITLE,
    AllOf,
    Bound,
    Exists,
    Filter,
    FilterValue,
    Match,
    NoneOf,
    Range,
    timestamp_of,
)

SYNTAX = (
    "KEY=VALUE, KEY!=VALUE, KEY>=VALUE (also >, <=, <), KEY "
    "(is present) or !KEY (is absent). KEY is document_id, title, source or a metadata key. "
    'VALUE is a number, true, false, a date or text. Put a text in "double quotes" if it would '
    'otherwise be read as one of the others; ["a","b"] matches either. Repeat the option to '
    "combine conditions: all must match."
)
HELP = f"Search only documents that match: {SYNTAX}"
WHERE_HELP = f"Only documents that match: {SYNTAX}"
FILTER_OPTION = "--filter"
WHERE_OPTION = "--where"

_SIGN = re.compile(r"!=|>=|<=|=|>|<")
_BOUND = {">=": "at_least", ">": "above", "<=": "at_most", "<": "below"}
_SHOWN_CHARS = 120
_TEXT_FIELDS = (DOCUMENT_ID, TITLE, SOURCE)


def parse_filters(conditions: Sequence[str] | None, option: str = FILTER_OPTION) -> Filter | None:
    """Returns the filter that requires all conditions; None if there are no conditions.

    Raises typer.BadParameter for a condition that cannot be parsed. The error names the position
    of the wrong character, counted from 1, and what is allowed.
    """
    filters = []
    for text in conditions or ():
        try:
            filters.append(_condition(text))
        except Malformed as error:
            position = f"at character {error.position + 1}: " if text else ""
            shown = repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")
            raise typer.BadParameter(f"{shown}: {position}{error}", param_hint=option) from None
    return AllOf(tuple(filters)) if filters else None


def _condition(text: str) -> Filter:
    sign_match = _SIGN.search(text)
    if sign_match is None:
        return _presence(text)
    field = _field(text[: sign_match.start()], 0)
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
    if sign in _BOUND:
        return Range(field, **{_BOUND[sign]: _bound(text, start)})
    match = Match(field, _values(text, start, is_text=field in _TEXT_FIELDS))
    return NoneOf((match,)) if sign == "!=" else match


def _presence(text: str) -> Filter:
    negated = text.startswith("!")
    exists = Exists(_field(text.removeprefix("!"), int(negated)))
    return NoneOf((exists,)) if negated else exists


def _field(key: str, start: int) -> str:
    """Returns the name of the filter field for `key`.

    `start` is the position of `key` in the condition. Raises Malformed.
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
        raise Malformed(
            "a key is missing: it must be document_id, title, source or a metadata key",
            start + len(key),
        )
    return key if key in _TEXT_FIELDS or key.startswith(METADATA) else METADATA + key


def _values(text: str, start: int, *, is_text: bool) -> tuple[FilterValue, ...]:
    parsed = parse_value(text, start)
    values = parsed if isinstance(parsed, list) else [parsed]
    if not values or not all(isinstance(value, str | int | float) for value in values):
        raise Malformed("a list must contain numbers, true, false or texts", start)
    if is_text and not isinstance(parsed, str | list):
        return (text[start:].strip(),)
    return tuple(values)


def _bound(text: str, start: int) -> Bound:
    parsed = parse_value(text, start)
    if isinstance(parsed, int | float) and not isinstance(parsed, bool):
        return parsed
    timestamp = timestamp_of(parsed) if isinstance(parsed, str) else None
    if timestamp is None:
        raise Malformed(
            f"{text[start:]!r} is neither a number nor a date such as 2026-11-21", start
        )
    return timestamp
