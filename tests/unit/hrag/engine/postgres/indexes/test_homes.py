"""The tables of homes, on one server and on a cluster."""

import pytest

from tests.support.documents.fakes import collection_settings
from tests.support.documents.vocabulary import wordy
from tests.support.engines.postgres_twins import twins_at

pytestmark = pytest.mark.postgres

_STORAGE = """
SELECT attname::text, attstorage::text FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND attlen < 0
"""
_HAS_TOAST = "SELECT reltoastrelid <> 0 FROM pg_class WHERE oid = %s::regclass"


@pytest.mark.parametrize("dimension", [16, 1500])
def test_no_vector_of_a_home_is_stored_out_of_line(postgres_dsn, dimension):
    """A scan of vectors that are stored out of line takes six times as long."""
    settings = collection_settings(dimension=dimension)
    with twins_at(postgres_dsn) as twins:
        twins.create(settings=settings)
        twins.put(wordy("d", 1, settings))
        twins.maintain()
        table = f"hrag_homes.leaves_{twins.home()}"
        with twins.database.read() as connection:
            storage = dict(connection.execute(_STORAGE, (table,)).fetchall())
            assert connection.execute(_HAS_TOAST, (table,)).fetchone() == (False,)
        assert storage == dict.fromkeys(("tenant_id", "above", "embedding"), "p")
