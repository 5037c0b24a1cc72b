"""Parses the metadata of `--meta KEY=VALUE`."""

from collections.abc import Sequence
from typing import Any

import typer

from hrag.cli.options.values import Malformed, parse_value

META_OPTION = "--meta"
VALUE_HELP = (
    'VALUE is a number, true, false or text. Put a text in "double quotes" if it would otherwise '
    'be read as one of the others; ["a","b"] and {"a": 1} are JSON.'
)


def parse_metadata(pairs: Sequence[str] | None, option: str = META_OPTION) -> dict[str, Any]:
    """Returns the metadata of several `KEY=VALUE` texts, by key.

    Raises typer.BadParameter if a text cannot be parsed or a key occurs twice.
    """
    metadata: dict[str, Any] = {}
    for text in pairs or ():
        key, value = _pair(text, option)
        if key in metadata:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint=option)
        metadata[key] = value
    return metadata


def _pair(text: str, option: str) -> tuple[str, Any]:
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
