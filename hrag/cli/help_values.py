"""Shows in the help of a command which values each of its options takes.

Typer would show types of Python, such as `<int range> [1<=x<=100]`. The help shows words instead:
`1 to 100`, `FILE`, or the values of a choice. A switch takes no value, so nothing is shown for it.
"""

from typing import Any

import typer
from typer import rich_utils
from typer.core import TyperCommand, TyperGroup

_WORDS = {str: "TEXT", int: "NUMBER", float: "NUMBER"}
# Larger maxima are those of a field of protobuf, so they tell a reader nothing.
_LARGEST_SHOWN = (1 << 32) - 2

# Typer appends the range of a number to the type; `values_of` already contains it.
rich_utils.RANGE_STRING = ""


class HragCommand(TyperCommand):
    """A command whose help shows the values of its options in words."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_values(super().get_params(ctx))


class HragGroup(TyperGroup):
    """A group of commands whose help shows the values of its options in words."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_values(super().get_params(ctx))


def _with_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
            parameter.metavar = argument_name(parameter)
        elif parameter.metavar is None:
            parameter.metavar = values_of(parameter)
    return parameters


def _no_type(ctx: Any) -> None:
    """Returns None, because the name of an argument already says what it is."""


def argument_name(argument: Any) -> str:
    """Returns the name under which the help shows an argument of a command."""
    if argument.metavar is not None:
        return str(argument.metavar)
    return values_of(argument).replace(" ", "") + ("..." if argument.nargs != 1 else "")


def values_of(parameter: Any) -> str:
    """Returns the values that an option or argument takes, in words; empty for a switch."""
    descriptor = parameter.type_descriptor
    if descriptor.is_choice:
        return " | ".join(map(_value, descriptor.choices))
    if getattr(parameter, "is_flag", False):
        return ""
    if descriptor.is_path:
        return {"dir": "FOLDER", "file": "FILE"}.get(descriptor.path_type, "PATH")
    if descriptor.is_ranged:
        return _range(descriptor.parameter_info)
    return _WORDS.get(descriptor.annotation, "TEXT")


def _value(choice: Any) -> str:
    return str(getattr(choice, "value", choice))


def _range(info: typer.models.ParameterInfo) -> str:
    if info.max is None or info.max > _LARGEST_SHOWN:
        return f"{info.min} or more"
    return f"up to {info.max}" if info.min is None else f"{info.min} to {info.max}"
