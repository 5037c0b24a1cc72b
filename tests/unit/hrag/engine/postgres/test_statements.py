"""The check of `tenants_named` reports each statement that does not name its tenant.

The tests that all engines share apply this check to every statement.
"""

import pytest

from hrag.engine.postgres.store.cluster import hold_placement
from tests.support.engines.postgres_statements import STORE_WIDE, tenants_named, unbound_tables

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("SELECT record FROM hrag.documents WHERE tenant_id = %s AND ordinal = %s", set()),
        ("INSERT INTO hrag.terms (tenant_id, ordinal) SELECT %s, %s", set()),
        (b"SELECT record FROM hrag.documents WHERE ordinal = %s", {"documents"}),
        ("DELETE FROM hrag.leaves USING hrag.terms", {"leaves"}),
        ('UPDATE "hrag"."tenants" SET sequence = 0', {"tenants"}),
        ("SELECT 1", set()),
    ],
)
def test_the_tables_of_a_statement_that_names_no_tenant_are_reported(statement, tables):
    assert unbound_tables(statement, None) == tables


def test_a_statement_that_names_no_tenant_fails_inside_the_check(database):
    assert "documents" not in STORE_WIDE
    with tenants_named(), database.read() as connection, pytest.raises(AssertionError):
        connection.execute("SELECT count(*) FROM hrag.documents")


WRITES = [
    "INSERT INTO hrag.tenants (tenant_id) VALUES ('t')",
    "UPDATE hrag.collections SET home = NULL WHERE tenant_id = %s",
    "DELETE FROM hrag.terms WHERE tenant_id = %s",
    "SELECT FROM hrag.tenants WHERE tenant_id = %s FOR UPDATE",
]


@pytest.mark.parametrize("statement", WRITES)
def test_a_write_before_the_placement_is_held_fails_inside_the_check(database, statement):
    parameters = ("t",) * statement.count("%s")
    with tenants_named(), database.write() as connection:
        with pytest.raises(AssertionError):
            connection.execute(statement, parameters)
        hold_placement(connection, "t")
        connection.execute(statement, parameters)
