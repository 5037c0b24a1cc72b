"""Parameters that only the slow group of tests uses."""

from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """Returns the values as parameters of the slow group, for `pytest.mark.parametrize`."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
