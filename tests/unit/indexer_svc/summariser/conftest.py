"""A collection that wants summaries, and a summariser that does not dawdle."""

import pytest

from indexer_svc import summariser as summariser_module
from tests.support.engines.summarisers import SETTINGS, FakeEmbedder


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """One call at a time, so that it is certain which is which; and no waiting."""
    monkeypatch.setattr(summariser_module, "_CALLS", 1)
    monkeypatch.setattr(summariser_module, "_POLL_S", 0.005)
    monkeypatch.setattr(summariser_module, "_FIRST_RETRY_S", 0.005)
    monkeypatch.setattr(summariser_module, "_LAST_RETRY_S", 0.02)
    monkeypatch.setattr(summariser_module, "_BACKOFF_S", 0.05)


@pytest.fixture
def store(engine):
    """The one that the writer has open."""
    return engine.store


@pytest.fixture
def writer(engine):
    engine.writer.create_collection("t", "c", SETTINGS)
    return engine.writer


@pytest.fixture
def embedder():
    return FakeEmbedder()
