"""Errors of PostgreSQL are translated to errors of hrag, except errors that show a bug."""

from collections.abc import Iterator

import psycopg
import pytest

from hrag.engine.postgres.store.failures import (
    Conflict,
    address_of_node,
    error_of,
    is_of_node,
    is_of_server,
    is_of_statement,
)
from hrag.errors import (
    Cancelled,
    DatabaseRefused,
    DataLoss,
    DeadlineExceeded,
    HragError,
    StorageFull,
    StoreMissing,
    StoreUnavailable,
)
from hrag.values.deadline import NEVER, Deadline
from hrag.wire.status_codes import message_of
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
        ("42501", DatabaseRefused),
        ("28000", DatabaseRefused),
        ("28P01", DatabaseRefused),
        ("3D000", DatabaseRefused),
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


_LOST_NODES = [
    ("08006", "connection to the remote node hrag_service@10.0.7.3:5432 failed"),
    ("57P01", "terminating connection due to administrator command"),
    ("57P03", "the database system is starting up"),
    ("XX000", "failure on connection marked as essential: 10.0.7.3:5432"),
    (
        "XX000",
        "execution cannot recover from multiple connection failures. Last failed 10.0.7.3:5432",
    ),
    ("55000", "10.0.7.3:5432 is a metadata node, but is out of sync"),
]


@pytest.mark.parametrize(("state", "message"), _LOST_NODES)
def test_a_lost_node_of_a_cluster_leaves_connections_to_the_coordinator_alone(
    postgres: PostgresServer, state: str, message: str
) -> None:
    error = raised(
        postgres, f"DO $$ BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = '{state}'; END $$"
    )
    assert is_of_statement(error)
    assert not is_of_server(error)
    unavailable = error_of(error, NEVER)
    assert type(unavailable) is StoreUnavailable
    assert unavailable.message == "a node of the cluster is not available"
    assert message in str(unavailable)
    assert is_of_node(error)
    assert address_of_node(error) == ("10.0.7.3:5432" if "10.0.7.3" in message else "unknown")


def test_the_address_of_a_node_is_in_the_context_of_its_errors(postgres: PostgresServer) -> None:
    # The name of the function is in the context of the error, as the command of Citus would be.
    statement = """
        CREATE FUNCTION pg_temp."while executing command on pg-1:5432 now"() RETURNS void
        LANGUAGE plpgsql AS $$ BEGIN RAISE admin_shutdown USING MESSAGE = 'the message'; END $$;
        SELECT pg_temp."while executing command on pg-1:5432 now"()
    """
    error = raised(postgres, statement)
    assert is_of_node(error)
    assert address_of_node(error) == "pg-1:5432"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("XX000", "could not find valid entry for shard 102037"),
        ("XX000", "could not find valid entry for shard placement 12"),
        ("XX000", "could not find any healthy placement for shard 102037"),
        ("55000", "no active placements were found for shard 102037"),
        ("42P01", 'relation "hrag.postings_parts_102037" does not exist'),
        ("42P01", 'relation "hrag_homes.leaves_7_102037" does not exist'),
    ],
)
def test_a_statement_whose_shard_has_moved_may_be_repeated(
    postgres: PostgresServer, state: str, message: str
) -> None:
    error = raised(
        postgres, f"DO $$ BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = '{state}'; END $$"
    )
    assert type(error_of(error, NEVER)) is Conflict
    assert is_of_statement(error)
    assert not is_of_server(error)


@pytest.mark.parametrize("state", ["XX000", "55000", "08P01"])
def test_other_errors_with_such_a_state_are_not_about_a_node(
    postgres: PostgresServer, state: str
) -> None:
    statement = f"DO $$ BEGIN RAISE EXCEPTION 'the message' USING ERRCODE = '{state}'; END $$"
    assert not is_of_statement(raised(postgres, statement))


def test_the_end_of_the_own_connection_is_not_about_a_node(postgres: PostgresServer) -> None:
    error = raised(postgres, "SELECT pg_terminate_backend(pg_backend_pid())")
    assert error.sqlstate == "57P01"
    assert is_of_server(error)
    assert not is_of_statement(error)


@pytest.mark.parametrize("state", ["08006", "42501", "57P03", "53300"])
def test_clients_learn_no_user_and_no_address(postgres: PostgresServer, state: str) -> None:
    statement = f"DO $$ BEGIN RAISE EXCEPTION 'me@10.0.7.3' USING ERRCODE = '{state}'; END $$"
    error = error_of(raised(postgres, statement), NEVER, "reader")
    assert error is not None
    assert "me@10.0.7.3" in str(error)
    for private in ("10.0.7.3", "reader"):
        assert private not in message_of(error)


def test_clients_do_not_learn_the_address_of_a_server_that_is_down() -> None:
    with pytest.raises(psycopg.OperationalError) as failed:
        psycopg.connect("host=127.0.0.1 port=1 user=somebody dbname=x")
    error = error_of(failed.value, NEVER)
    assert error is not None
    assert message_of(error) == "PostgreSQL is not available"
    assert "127.0.0.1" in str(error)


@pytest.fixture(scope="module")
def _roles(postgres: PostgresServer) -> Iterator[None]:
    """A role that may not log in, and a database to which another role may not connect."""
    for created in ("ROLE locked", "ROLE kept_out LOGIN", "DATABASE closed"):
        postgres.run(f"CREATE {created}")
    postgres.run("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
    yield
    # A process may run the tests of this module in two parts, and then it creates them again.
    for created in ("DATABASE closed WITH (FORCE)", "ROLE kept_out", "ROLE locked"):
        postgres.run(f"DROP {created}")


@pytest.mark.usefixtures("_roles")
@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ({"password": "wrong"}, "password authentication failed"),
        ({"password": ""}, "no password supplied"),
        ({"user": "nobody", "host": "socket"}, 'role "nobody" does not exist'),
        ({"dbname": "missing", "host": "socket"}, 'database "missing" does not exist'),
        ({"user": "locked", "host": "socket"}, "is not permitted to log in"),
        ({"user": "kept_out", "dbname": "closed", "host": "socket"}, "permission denied"),
        ({"sslmode": "require"}, "server does not support SSL"),
        ({"sslmode": "bogus"}, "invalid sslmode value"),
        ({"port": 99_999}, "invalid port number"),
        ({"service": "none"}, 'definition of service "none" not found'),
        ({"options": "-c bogus=1"}, "unrecognized configuration parameter"),
    ],
)
def test_a_connection_that_the_settings_make_impossible_is_refused(
    postgres: PostgresServer, dsn: dict[str, object], words: str
) -> None:
    """A retry does not help, so commands end with another exit code than after an outage."""
    is_local = dsn.get("host") == "socket"
    ours = postgres.dsn() if is_local else postgres.tcp_dsn()
    others = {name: value for name, value in dsn.items() if name != "host"}
    with pytest.raises(psycopg.OperationalError) as failed:
        psycopg.connect(psycopg.conninfo.make_conninfo(ours, **others))
    error = error_of(failed.value, NEVER)
    assert type(error) is DatabaseRefused
    assert message_of(error) == "PostgreSQL refuses the connection"
    assert words in str(error)
    assert "correct HRAG_POSTGRES_DSN" in str(error)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=127.0.0.1 port=1",
        "host=/nowhere",
        "host=no.such.host.invalid",
        "host=192.0.2.1 connect_timeout=2",
    ],
)
def test_a_server_that_does_not_answer_is_not_available(dsn: str) -> None:
    with pytest.raises(psycopg.OperationalError) as failed:
        psycopg.connect(dsn, connect_timeout=2)
    error = error_of(failed.value, NEVER)
    assert type(error) is StoreUnavailable
    assert message_of(error) == "PostgreSQL is not available"


@pytest.mark.parametrize(
    "message",
    [
        "the database system is starting up",
        "the database system is not yet accepting connections",
        "sorry, too many clients already",
        'too many connections for role "narrow"',
        "session is read-only",
    ],
)
def test_a_server_that_accepts_no_connection_for_now_is_not_available(message: str) -> None:
    failed = psycopg.OperationalError(
        f'connection failed: connection to server at "db", port 5432 failed: FATAL:  {message}'
    )
    assert type(error_of(failed, NEVER)) is StoreUnavailable
