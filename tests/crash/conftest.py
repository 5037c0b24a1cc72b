"""What a developer has exported must not reach the services under test."""

import os
from collections.abc import Iterator

import pytest

_OURS = ("HRAG_", "HIERARCHICAL_", "SMALL_TO_BIG_", "OPENAI_")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_OURS)]:
            patch.delenv(name)
        yield
