"""Groups of options that several commands share.

A command receives all options of a group as one value.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

Command = Callable[..., None]


def option_group(
    parameter: str, make: Callable[..., Any], *, last: bool
) -> Callable[[Command], Command]:
    """Returns a decorator that replaces a command's `parameter` by a group of options.

    The options are the parameters of `make`. The decorated command calls `make` with the values
    of the options, and passes its result to the command as `parameter`. The help lists the group
    after the command's other options if `last`, otherwise before them.
    """

    def decorate(command: Command) -> Command:
        parameters = inspect.signature(command).parameters.values()
        other_options = [option for option in parameters if option.name != parameter]
        group = list(inspect.signature(make).parameters.values())

        @wraps(command)
        def run(**values: Any) -> None:
            arguments = {option.name: values.pop(option.name) for option in group}
            command(**{parameter: make(**arguments)}, **values)

        options = [*other_options, *group] if last else [*group, *other_options]
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        return run

    return decorate
