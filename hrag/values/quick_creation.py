"""Creates frozen values of a search without a call for each of their fields.

The constructor of a frozen dataclass calls `object.__setattr__` for each field, which takes about
0.3 us. `SearchQuery` and `SearchResult` have more than forty fields, and every search creates them.
"""

from typing import Any, TypeVar

T = TypeVar("T")


def created(cls: type[T], fields: dict[str, Any]) -> T:
    """Returns a value of the dataclass `cls` with these fields. Keeps the dictionary.

    The class must have neither slots nor fields with a default factory. Fields that are not passed
    have their defaults, which are attributes of the class. All fields without a default must be
    passed.
    """
    # The fields are a dictionary and not keywords, because keywords take twice as long.
    value = object.__new__(cls)
    object.__setattr__(value, "__dict__", fields)
    return value
