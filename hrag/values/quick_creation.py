"""Creates frozen values of a search without a call for each of their fields.

The constructor of a frozen dataclass calls `object.__setattr__` for each field, which takes about
0.3 us. `SearchQuery` and `SearchResult` have more than forty fields, and every search creates them.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def created(cls: Callable[P, T], *_: P.args, **fields: P.kwargs) -> T:
    """Returns a value of the dataclass `cls` with these fields.

    The class must have neither slots nor fields with a default factory. Fields that are not passed
    have their defaults, which are attributes of the class. All fields without a default must be
    passed, and no field may be passed by its position.
    """
    value = object.__new__(cls)  # type: ignore[arg-type]
    object.__setattr__(value, "__dict__", fields)
    return value
