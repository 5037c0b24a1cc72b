"""Fixtures for the tests of the indexer."""

import sys
from collections.abc import Iterator

import pytest

from indexer_svc.mime_types import has_formats_extra


@pytest.fixture
def without_formats_extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hides a library of the extra `formats`, as if the extra were not installed."""
    monkeypatch.setitem(sys.modules, "selectolax", None)
    has_formats_extra.cache_clear()
    yield
    has_formats_extra.cache_clear()
