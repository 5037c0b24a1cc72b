"""Fixtures for the tests of maintenance."""

import pytest

from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.writer import EmbeddedWriter
from tests.support.documents.fakes import collection_settings


@pytest.fixture
def writer(store: Store) -> EmbeddedWriter:
    """A writer that reports to no worker, and that has created the collection `c` of tenant `t`."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    return writer
