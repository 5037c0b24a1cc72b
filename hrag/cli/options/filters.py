"""Parsing of conditions such as `lang=en` or `year>=2024`, of `--filter` and `--where`.

What looks like a mistake is refused, with its place and what is allowed: a condition that was
meant otherwise would silently match nothing, or everything.
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
    'VALUE is a number, true, false, a date or text, in "double quotes" where it would be taken '
    'for another; ["a","b"] matches either. Repeat the option to combine conditions: all must '
    "match."
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
    """Returns the filter that all conditions make together; None without conditions.

    Raises typer.BadParameter for a condition that cannot be parsed: it names the character,
    counted from 1, and what is allowed.
    """
    filters = []
    for text in conditions or ():
        try:
            filters.append(_condition(text))
        except Malformed as error:
            place = f"at character {error.position + 1}: " if text else ""
            shown = repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")
            raise typer.BadParameter(f"{shown}: {place}{error}", param_hint=option) from None
    return AllOf(tuple(filters)) if filters else None


def _condition(text: str) -> Filter:
    found = _SIGN.search(text)
    if found is None:
        return _presence(text)
    field = _field(text[: found.start()], 0)
    sign, start = found[0], found.end()
    start += len(text[start:]) - len(text[start:].lstrip())
    if start == len(text):
        raise Malformed(f'no value follows {sign}; an empty text is ""', start)
    if text[start] in "=<>":
        raise Malformed(
            f"{sign}{text[start]} is no comparison; it must be = != >= > <= or <, and a text that "
            f'begins with {text[start]} must be in "double quotes"',
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
    """The field that `key`, which begins at `start`, names."""
    place = re.search(r"[!\"]", key)
    if place is not None:
        raise Malformed(
            f"{place[0]} is not allowed in a key; conditions are KEY=VALUE, KEY!=VALUE, "
            "KEY>=VALUE, KEY or !KEY",
            start + place.start(),
        )
    key = key.strip()
    if key in ("", METADATA):
        raise Malformed(
            "a key is missing: document_id, title, source or that of a value in the metadata",
            start + len(key),
        )
    return key if key in _TEXT_FIELDS or key.startswith(METADATA) else METADATA + key


def _values(text: str, start: int, *, is_text: bool) -> tuple[FilterValue, ...]:
    read = parse_value(text, start)
    values = read if isinstance(read, list) else [read]
    if not values or not all(isinstance(each, str | int | float) for each in values):
        raise Malformed("a list must hold numbers, true, false or texts", start)
    if is_text and not isinstance(read, str | list):
        return (text[start:].strip(),)
    return tuple(values)


def _bound(text: str, start: int) -> Bound:
    read = parse_value(text, start)
    if isinstance(read, int | float) and not isinstance(read, bool):
        return read
    moment = timestamp_of(read) if isinstance(read, str) else None
    if moment is None:
        raise Malformed(
            f"{text[start:]!r} is neither a number nor a date such as 2026-11-21", start
        )
    return moment
