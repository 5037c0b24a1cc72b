"""Fixtures for the summariser: a collection with summaries, and an embedder."""

import pytest

from tests.support.engines.summarisers import SETTINGS, FakeEmbedder


@pytest.fixture
def store(engine):
    """The store that the writer has open."""
    return engine.store


@pytest.fixture
def writer(engine):
    """A writer with the collection `c` of the tenant `t`, whose documents get summaries."""
    engine.writer.create_collection("t", "c", SETTINGS)
    return engine.writer


@pytest.fixture
def embedder():
    return FakeEmbedder()
