"""Groups of options that several commands share. A command receives a group as one value."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

Command = Callable[..., None]


def option_group(
    parameter: str, make: Callable[..., Any], *, last: bool
) -> Callable[[Command], Command]:
    """Returns a decorator that replaces a command's `parameter` by a group of options.

    The options are the parameters of `make`; its result is passed to the command as
    `parameter`. They are listed after the command's own options if `last`, else before them.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command).parameters.values()
        own_options = [each for each in own if each.name != parameter]
        group = list(inspect.signature(make).parameters.values())

        @wraps(command)
        def run(**values: Any) -> None:
            arguments = {each.name: values.pop(each.name) for each in group}
            command(**{parameter: make(**arguments)}, **values)

        options = [*own_options, *group] if last else [*group, *own_options]
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        return run

    return decorate
