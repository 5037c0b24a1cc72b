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


def run_psql(postgres: PostgresServer, dsn: str, secrets: Path, script: str) -> str:
    """Runs a script; returns its errors, which are empty if it has succeeded."""
    program = [str(postgres.binaries / "psql"), "--no-psqlrc", "--dbname", dsn]
    process = subprocess.run(
        [*program, "--set", f"secrets={secrets}"],
        check=False,
        input=script,
        capture_output=True,
        text=True,
    )
    assert (process.returncode == 0) == (process.stderr == "")
    return process.stderr


def run_script(postgres: PostgresServer, dsn: str, secrets: Path) -> str:
    """Runs deploy/citus.sql without the call that distributes the tables; returns its errors."""
    script = (ROOT / "deploy" / "citus.sql").read_text("utf-8")
    assert script.count(_CALL) == 1
    return run_psql(postgres, dsn, secrets, script.replace(_CALL, ""))


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
        assert run_script(own_server, dsn, tmp_path) == ""
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


@pytest.mark.postgres
def test_the_script_keeps_the_password_if_the_folder_is_wrong(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    dsn = own_server.dsn(own_server.empty_database())
    with closing(PostgresDatabase(dsn, 2, "test")) as database:
        migrate(database)
    stored = "SELECT rolpassword FROM pg_authid WHERE rolname = 'hrag_service'"
    (tmp_path / "nodes").write_text("the nodes' password")
    assert run_script(own_server, dsn, tmp_path) == ""
    ((password,),) = own_server.run(stored)
    assert password is not None
    assert run_script(own_server, dsn, tmp_path / "other") == ""
    assert own_server.run(stored) == [(password,)]


@pytest.mark.postgres
def test_scripts_that_run_too_early_name_the_step_before(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    name = own_server.empty_database()
    dsn = own_server.dsn(name)
    assert "run deploy/postgres/roles.sql first" in run_script(own_server, dsn, tmp_path)
    roles = (ROOT / "deploy" / "postgres" / "roles.sql").read_text("utf-8")
    assert f"the folder {tmp_path} needs the files owner" in run_psql(
        own_server, dsn, tmp_path, roles
    )
    for file in ("owner", "service"):
        (tmp_path / file).write_text("password")
    assert run_psql(own_server, dsn, tmp_path, roles) == ""
    problem = run_script(own_server, dsn, tmp_path)
    assert f"the database {name} has no store" in problem
    assert "run hrag postgres migrate first" in problem


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
