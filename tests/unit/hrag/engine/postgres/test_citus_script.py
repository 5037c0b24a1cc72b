"""The script deploy/citus.sql runs, and may run again.

The PostgreSQL server of the tests has no Citus, so the tests leave out the call that distributes
the tables.
"""

import re
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from hrag.engine.postgres.store.database import EF_SEARCH, PostgresDatabase
from hrag.engine.postgres.store.schema import migrate
from tests.support.manuals import ROOT
from tests.support.servers.postgres_server import PostgresServer

LOCAL_TABLES = {"migrations", "home_slots"}
"""The tables that stay on the coordinator."""
_CALL = "CALL hrag.distribute_tables();"


def run_script(postgres: PostgresServer, dsn: str, secrets: Path) -> None:
    """Runs deploy/citus.sql without the call that distributes the tables."""
    script = (ROOT / "deploy" / "citus.sql").read_text("utf-8")
    assert script.count(_CALL) == 1
    program = [str(postgres.binaries / "psql"), "--no-psqlrc", "--dbname", dsn]
    process = subprocess.run(
        [*program, "--set", f"secrets={secrets}"],
        check=False,
        input=script.replace(_CALL, ""),
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.postgres
def test_the_script_gives_the_role_of_services_a_password_and_settings_on_nodes(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    dsn = own_server.dsn(own_server.empty_database())
    with closing(PostgresDatabase(dsn, 2, "test")) as database:
        migrate(database)
    for password in ("", "the nodes' password"):
        if password:
            (tmp_path / "nodes").write_text(password)
        run_script(own_server, dsn, tmp_path)
        with psycopg.connect(dsn) as connection:
            login = connection.execute(
                "SELECT rolcanlogin, rolpassword IS NOT NULL FROM pg_authid"
                " WHERE rolname = 'hrag_service'"
            ).fetchone()
            settings = connection.execute(
                "SELECT setrole::regrole::text, setting"
                " FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase,"
                " unnest(setconfig) AS setting WHERE datname = current_database()"
            ).fetchall()
        assert login == (True, password != "")
        assert set(settings) == {
            ("-", f"hnsw.ef_search={EF_SEARCH}"),
            ("-", "hnsw.iterative_scan=relaxed_order"),
            ("-", "jit=off"),
            ("hrag_service", "enable_seqscan=off"),
        }


def test_each_table_is_distributed_or_stays_on_the_coordinator() -> None:
    folder = ROOT / "hrag" / "engine" / "postgres" / "store" / "migrations"
    scripts = "".join(path.read_text("utf-8") for path in folder.glob("*.sql"))
    tables = set(re.findall(r"CREATE TABLE hrag\.(\w+)", scripts))
    procedure = scripts.partition("PROCEDURE hrag.distribute_tables")[2].partition("\n$$;")[0]
    distributed = set(re.findall(r"'(?:hrag\.)?(\w+)'", procedure)) & tables
    assert distributed == tables - LOCAL_TABLES


@pytest.mark.postgres
def test_a_database_without_citus_is_not_distributed(postgres_dsn: str) -> None:
    with (
        psycopg.connect(postgres_dsn) as connection,
        pytest.raises(psycopg.errors.RaiseException, match="does not have the extension citus"),
    ):
        connection.execute("CALL hrag.distribute_tables()")
