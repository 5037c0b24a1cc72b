"""The tables of homes, on one server and on a cluster."""

import pytest

from hrag.engine.postgres.store.cluster import is_distributed
from tests.support.documents.fakes import collection_settings
from tests.support.documents.vocabulary import wordy
from tests.support.engines.postgres_twins import twins_at

pytestmark = pytest.mark.postgres

TENANTS = [f"tenant {number}" for number in range(8)]
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


def test_places_in_homes_are_taken_given_back_and_taken_again(postgres_dsn):
    """On a cluster, collections share homes. On one server, each of them has its own."""
    with twins_at(postgres_dsn) as twins:

        def fill(tenant_id: str, seed: int) -> None:
            twins.create(tenant_id)
            twins.put(*(wordy(f"d{n}", seed + n) for n in range(4)), tenant_id=tenant_id)
            twins.maintain(tenant_id)
            assert twins.home(tenant_id) is not None

        for tenant_id in TENANTS:
            fill(tenant_id, 0)
        assert twins.rows("hrag.leaves") == 0
        twins.assert_same()
        homes = {twins.home(tenant_id) for tenant_id in TENANTS}
        with twins.database.read() as connection:
            assert (len(homes) < len(TENANTS)) == is_distributed(connection)
        for tenant_id in TENANTS[::2]:
            twins.drop(tenant_id)
        twins.reclaim()
        assert twins.rows("hrag.home_slots") == len(TENANTS[1::2])
        for tenant_id in TENANTS[::2]:
            fill(tenant_id, 20)
        twins.assert_same()
