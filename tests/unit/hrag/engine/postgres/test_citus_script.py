"""The script deploy/citus.sql runs, and hrag runs on the tables that the script changes.

The PostgreSQL server of the tests has no Citus. It has stand-ins for the functions of Citus, which
record their calls. So the tests do not show how Citus itself distributes the tables.
"""

import subprocess

import psycopg
import pytest

from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    query_vector,
    sentences,
)
from tests.support.manuals import ROOT
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

CITUS_STAND_INS = """
CREATE TABLE distributed (number serial, name text, is_empty boolean);
CREATE FUNCTION create_distributed_table(name regclass, by text, colocate_with text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found boolean;
BEGIN
    EXECUTE format('SELECT NOT EXISTS (SELECT %I FROM %s)', by, name) INTO found;
    INSERT INTO distributed (name, is_empty) VALUES (name::text, found);
END $$;
CREATE FUNCTION run_command_on_all_nodes(command text) RETURNS void LANGUAGE plpgsql
AS $$ BEGIN EXECUTE command; END $$;
"""


@pytest.fixture
def distributed(postgres: PostgresServer, postgres_dsn: str) -> str:
    """The DSN of a database in which deploy/citus.sql has run."""
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(CITUS_STAND_INS)
    program = [str(postgres.binaries / "psql"), "--no-psqlrc", "--set", "ON_ERROR_STOP=1"]
    file = str(ROOT / "deploy" / "citus.sql")
    process = subprocess.run(
        [*program, "--dbname", postgres_dsn, "--file", file],
        check=False,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return postgres_dsn


def test_the_tables_of_homes_are_distributed_while_empty_and_have_the_tenant_in_their_key(
    distributed: str, database: PostgresDatabase
) -> None:
    writer = PostgresWriter(database)
    writer.create_collection("t", "c", collection_settings())
    collection = writer.open("t", "c")
    worker = MaintenanceWorker(database, home_leaves=8)
    for number in range(8):
        writer.put(collection, prepared(f"d{number}", sentences(30), seed=number))
        if number % 4 == 3:
            worker.maintain("t", collection.collection_id, every_leaf=True)
    writer.delete(collection, "d0")
    with PostgresReader(database).snapshot("t", "c") as snapshot:
        assert find(snapshot, query_vector(1), 5).passages
    with psycopg.connect(distributed) as connection:
        names = connection.execute("SELECT name, is_empty FROM distributed ORDER BY number")
        homes = [row for row in names if row[0].startswith("hrag_homes.")]
        keys = connection.execute(
            "SELECT DISTINCT pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = 'hrag_homes'::regnamespace AND contype = 'p'"
        ).fetchall()
        settings = connection.execute(
            "SELECT current_setting('hnsw.ef_search'), current_setting('hnsw.iterative_scan')"
        ).fetchone()
    assert len(homes) >= 2
    assert all(is_empty for _, is_empty in homes)
    assert keys == [("PRIMARY KEY (tenant_id, ordinal, leaf)",)]
    assert settings == ("200", "relaxed_order")
