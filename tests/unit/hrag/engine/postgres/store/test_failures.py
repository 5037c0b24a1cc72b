"""Errors of PostgreSQL are translated to errors of hrag, except errors that show a bug."""

import psycopg
import pytest

from hrag.engine.postgres.store.failures import Conflict, error_of, is_of_server, lost_node
from hrag.errors import (
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    HragError,
    StorageFull,
    StoreMissing,
    StoreUnavailable,
)
from hrag.values.deadline import NEVER, Deadline
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres


def raised(postgres: PostgresServer, statement: str) -> psycopg.Error:
    """Returns the error that a statement raises."""
    with pytest.raises(psycopg.Error) as failed:
        postgres.run(statement)
    return failed.value


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("08006", StoreUnavailable),
        ("25006", StoreUnavailable),
        ("53100", StorageFull),
        ("53200", StoreUnavailable),
        ("53300", StoreUnavailable),
        ("57P01", StoreUnavailable),
        ("57P03", StoreUnavailable),
        ("40001", Conflict),
        ("40P01", Conflict),
        ("42501", StoreUnavailable),
        ("XX001", DataLoss),
        ("XX002", DataLoss),
    ],
)
def test_each_sqlstate_is_translated_to_its_error(
    postgres: PostgresServer, state: str, expected: type[HragError]
) -> None:
    statement = f"DO $$ BEGIN RAISE EXCEPTION 'the message' USING ERRCODE = '{state}'; END $$"
    error = error_of(raised(postgres, statement), NEVER, "reader")
    assert type(error) is expected
    assert "the message" in str(error)
    assert ("reader" in str(error)) == (state == "42501")


@pytest.mark.parametrize(
    "statement",
    ["SELEC", "SELECT 1 / 0", "SELECT * FROM home_7.leaves", "SELECT * FROM other"],
)
def test_an_error_that_shows_a_bug_is_not_translated(
    postgres: PostgresServer, statement: str
) -> None:
    assert error_of(raised(postgres, statement), NEVER) is None


@pytest.mark.parametrize("statement", ["SELECT * FROM hrag.tenants", "CREATE TABLE hrag.new ()"])
def test_an_error_about_the_missing_schema_means_a_missing_store(
    postgres: PostgresServer, statement: str
) -> None:
    assert isinstance(error_of(raised(postgres, statement), NEVER), StoreMissing)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("la relation « hrag.tenants » n''existe pas", StoreMissing),
        ("Relation »hrag.tenants« existiert nicht", StoreMissing),
        ('リレーション"hrag.tenants"は存在しません', StoreMissing),
        ("no existe la relación «hrag.tenants»", StoreMissing),
        ("la relation « hrag_homes.leaves_7 » n''existe pas", type(None)),
        ("la relation « public.hragged » n''existe pas", type(None)),
    ],
)
def test_a_missing_store_is_recognised_in_any_language_of_the_server(
    postgres: PostgresServer, message: str, expected: type[HragError]
) -> None:
    statement = f"DO $$ BEGIN RAISE undefined_table USING MESSAGE = '{message}'; END $$"
    assert isinstance(error_of(raised(postgres, statement), NEVER), expected)


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [
        (Deadline.after(0), DeadlineExceeded),
        (Deadline.after(3600, lambda: False), Cancelled),
        (Deadline.after(3600), StoreUnavailable),
    ],
)
def test_the_deadline_decides_the_error_of_a_cancelled_statement(
    postgres: PostgresServer, deadline: Deadline, expected: type[HragError]
) -> None:
    statement = "DO $$ BEGIN RAISE query_canceled; END $$"
    assert type(error_of(raised(postgres, statement), deadline)) is expected


@pytest.mark.parametrize(
    ("message", "node", "problem"),
    [
        (
            (
                "connection to the remote node hrag_service@pg-1:5432 failed with the following "
                "error: fe_sendauth: no password supplied"
            ),
            "pg-1:5432",
            "fe_sendauth: no password supplied",
        ),
        (
            "connection to the remote node hrag_service@10.0.7.11:5432 failed",
            "10.0.7.11:5432",
            "no reason is known",
        ),
        (
            "connection establishment for node pg-1:5432 failed",
            "pg-1:5432",
            "no reason is known",
        ),
    ],
)
def test_a_lost_node_is_named_in_the_log_only(
    postgres: PostgresServer, message: str, node: str, problem: str
) -> None:
    statement = f"DO $$ BEGIN RAISE connection_failure USING MESSAGE = '{message}'; END $$"
    error = raised(postgres, statement)
    assert lost_node(error) == (node, problem)
    assert not is_of_server(error)
    shown = error_of(error, NEVER)
    assert type(shown) is StoreUnavailable
    assert not any(word in str(shown) for word in (node, "hrag_service", problem))


def test_an_error_that_a_lost_node_reports_is_not_of_the_coordinator(
    postgres: PostgresServer,
) -> None:
    # The name of the function is in the context of the error, as the command of Citus would be.
    statement = """
        CREATE FUNCTION pg_temp."while executing command on pg-1:5432 now"() RETURNS void
        LANGUAGE plpgsql AS $$ BEGIN RAISE admin_shutdown USING MESSAGE = 'the message'; END $$;
        SELECT pg_temp."while executing command on pg-1:5432 now"()
    """
    error = raised(postgres, statement)
    assert lost_node(error) == ("pg-1:5432", "the message")
    assert not is_of_server(error)
    assert type(error_of(error, NEVER)) is StoreUnavailable


def test_an_error_of_the_only_server_is_about_no_node(postgres: PostgresServer) -> None:
    error = raised(postgres, "DO $$ BEGIN RAISE connection_failure; END $$")
    assert lost_node(error) is None
    assert is_of_server(error)
