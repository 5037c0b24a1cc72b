"""Options that several commands take together, given to a command as one value."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

Command = Callable[..., None]


def gathering(
    parameter: str, make: Callable[..., Any], *, last: bool
) -> Callable[[Command], Command]:
    """Decorates a command whose `parameter` is what `make` returns.

    In its place the command gets the options of `make`, before or behind its own.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command).parameters.values()
        others = [each for each in own if each.name != parameter]
        gathered = list(inspect.signature(make).parameters.values())

        @wraps(command)
        def run(**values: Any) -> None:
            asked = {each.name: values.pop(each.name) for each in gathered}
            command(**{parameter: make(**asked)}, **values)

        options = [*others, *gathered] if last else [*gathered, *others]
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        return run

    return decorate
