"""Parsing of `--filter` conditions such as `lang=en` or `year>=2024`."""

import json
import re
from collections.abc import Sequence

import typer

from hrag.filters import (
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

HELP = (
    "Search only documents that match: KEY=VALUE, KEY!=VALUE, KEY>=VALUE (also >, <=, <), KEY "
    "(is present) or !KEY (is absent). KEY is document_id, title, source or a metadata key. "
    'VALUE is a number, true, false, a date or text; ["a","b"] matches either. Repeat the '
    "option to combine conditions: all must match."
)
_CONDITION = re.compile(r"(?P<key>[^=<>!]+)(?P<sign>!=|>=|<=|=|>|<)(?P<value>.*)", re.DOTALL)
_BOUND = {">=": "at_least", ">": "above", "<=": "at_most", "<": "below"}


def parse_filters(conditions: Sequence[str]) -> Filter | None:
    """Returns the filter that all conditions make together; None without conditions.

    Raises typer.BadParameter for a condition that cannot be parsed.
    """
    filters = tuple(map(_condition, conditions))
    return AllOf(filters) if filters else None


def _condition(text: str) -> Filter:
    found = _CONDITION.fullmatch(text)
    if found is None:
        if re.search(r"[=<>]", text) or not text.strip("! "):
            raise _refused(text, "it must be KEY=VALUE or another form shown by --help")
        exists = Exists(_field(text.removeprefix("!")))
        return NoneOf((exists,)) if text.startswith("!") else exists
    field, sign, value = _field(found["key"]), found["sign"], found["value"].strip()
    if sign in _BOUND:
        return Range(field, **{_BOUND[sign]: _bound(text, value)})
    match = Match(field, _values(text, value, is_text=not field.startswith(METADATA)))
    return NoneOf((match,)) if sign == "!=" else match


def _field(key: str) -> str:
    key = key.strip()
    named = key in (DOCUMENT_ID, TITLE, SOURCE) or key.startswith(METADATA)
    return key if named else METADATA + key


def _values(text: str, value: str, *, is_text: bool) -> tuple[FilterValue, ...]:
    read = _json(value)
    values = read if isinstance(read, list) else [value if is_text else read]
    if not values or not all(isinstance(each, str | int | float) for each in values):
        raise _refused(text, "a list must hold numbers, true, false or texts")
    return tuple(values)


def _json(value: str) -> object:
    """The JSON number, boolean or list in `value`, or else `value` itself."""
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):  # RecursionError: deeply nested brackets.
        return value
    return read if isinstance(read, str | int | float | list) else value


def _bound(text: str, value: str) -> Bound:
    read = _json(value)
    if isinstance(read, int | float) and not isinstance(read, bool):
        return read
    moment = timestamp_of(value)
    if moment is None:
        raise _refused(text, f"{value!r} is neither a number nor a date such as 2026-11-21")
    return moment


def _refused(text: str, why: str) -> typer.BadParameter:
    return typer.BadParameter(f"{text!r}: {why}", param_hint="--filter")
