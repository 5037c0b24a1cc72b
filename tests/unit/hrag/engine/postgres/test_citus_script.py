"""The script deploy/citus.sql runs, and hrag runs on the tables that the script changes.

The PostgreSQL server of the tests has no Citus. It has stand-ins for the functions of Citus, which
record their calls. So the tests do not show how Citus itself distributes the tables.
"""

import re
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import EF_SEARCH, PostgresDatabase
from hrag.engine.postgres.store.schema import migrate
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
CREATE TABLE pg_dist_partition (logicalrelid regclass);
CREATE FUNCTION create_distributed_table(name text, by text, colocate_with text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found boolean;
BEGIN
    EXECUTE format('SELECT NOT EXISTS (SELECT %I FROM %s)', by, name) INTO found;
    INSERT INTO distributed (name, is_empty) VALUES (name, found);
    INSERT INTO pg_dist_partition VALUES (name::regclass);
END $$;
CREATE FUNCTION create_distributed_table(name regclass, by text, colocate_with text)
RETURNS void LANGUAGE sql AS 'SELECT create_distributed_table(name::text, by, colocate_with)';
"""
LOCAL_TABLES = {"migrations", "deleted_collections", "unused_homes"}
"""The tables that stay on the coordinator."""


def run_script(postgres: PostgresServer, dsn: str, secrets: Path) -> None:
    """Runs deploy/citus.sql, without its call that distributes the fixed tables."""
    script = (ROOT / "deploy" / "citus.sql").read_text("utf-8")
    script = script.replace("CALL hrag.distribute_tables();", "")
    program = [str(postgres.binaries / "psql"), "--no-psqlrc", "--dbname", dsn]
    process = subprocess.run(
        [*program, "--set", f"secrets={secrets}"],
        check=False,
        input=script,
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stderr) == (0, "")


@pytest.fixture
def distributed(own_server: PostgresServer, tmp_path: Path) -> str:
    """The DSN of a database in which deploy/citus.sql has run twice."""
    name = own_server.empty_database()
    dsn = own_server.dsn(name)
    own_server.run("CREATE ROLE hrag_owner", name)
    with closing(PostgresDatabase(dsn, 2, "test")) as database:
        migrate(database)
    with psycopg.connect(dsn) as connection:
        connection.execute(CITUS_STAND_INS)
    run_script(own_server, dsn, tmp_path)
    (tmp_path / "nodes").write_text("the nodes' password")
    run_script(own_server, dsn, tmp_path)
    return dsn


def test_the_script_gives_the_role_of_services_its_settings_on_nodes(distributed: str) -> None:
    with psycopg.connect(distributed) as connection:
        row = connection.execute(
            "SELECT rolcanlogin, rolpassword IS NOT NULL, setconfig"
            " FROM pg_authid JOIN pg_db_role_setting ON setrole = pg_authid.oid"
            " WHERE rolname = 'hrag_service'"
        ).fetchone()
    assert row is not None
    assert row[:2] == (True, True)
    assert set(row[2]) == {
        f"hnsw.ef_search={EF_SEARCH}",
        "hnsw.iterative_scan=relaxed_order",
        "enable_seqscan=off",
        "jit=off",
    }


def test_each_table_is_distributed_or_stays_on_the_coordinator() -> None:
    folder = ROOT / "hrag/engine/postgres/store/migrations"
    scripts = [path.read_text("utf-8") for path in sorted(folder.glob("*.sql"))]
    tables = set(re.findall(r"CREATE TABLE hrag\.(\w+)", "".join(scripts)))
    body = scripts[-1].partition("CREATE PROCEDURE")[2]
    distributed = set(re.findall(r"'(?:hrag\.)?(\w+)'", body)) & tables
    assert distributed == tables - LOCAL_TABLES


def test_the_tables_of_homes_are_distributed_while_empty_and_have_the_tenant_in_their_key(
    distributed: str, opened: Callable[..., PostgresDatabase]
) -> None:
    database = opened(distributed)
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
    assert len(homes) >= 2
    assert all(is_empty for _, is_empty in homes)
    assert keys == [("PRIMARY KEY (tenant_id, ordinal, leaf)",)]
