"""Data source names (DSN): the host, the database and the user of a PostgreSQL connection."""

from hrag.values.installation import install_command

# The keywords of a DSN whose values a message may show, because they contain no password.
_SHOWN_KEYWORDS = ("service", "host", "hostaddr", "port", "dbname", "user")


def without_secrets(dsn: str) -> str:
    """Returns a DSN without its secrets: only host, port, service, database and user are kept.

    `dsn` must be valid. The result has the form `host=... dbname=... user=...`. It contains no
    password, so messages can show it.
    """
    from psycopg import conninfo  # noqa: PLC0415  # Only the PostgreSQL engine needs psycopg.

    keywords = conninfo.conninfo_to_dict(dsn)
    return conninfo.make_conninfo(
        "", **{key: keywords[key] for key in _SHOWN_KEYWORDS if key in keywords}
    )


def check_dsn(value: str) -> None:
    """Raises ValueError if `value` is not a valid DSN, or if psycopg is not installed.

    The message contains no part of `value`, because it may contain a password.
    """
    try:
        import psycopg  # noqa: PLC0415  # Only the PostgreSQL engine needs psycopg.
    except ImportError:
        raise ValueError(f"HRAG_ENGINE=postgres needs {install_command('postgres')}") from None
    try:
        psycopg.conninfo.conninfo_to_dict(value)
    except psycopg.ProgrammingError:
        raise ValueError(
            "must be a URI, as in postgresql://user@host/database, or keywords, as in "
            "host=... dbname=..., as libpq reads them"
        ) from None
