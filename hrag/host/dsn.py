"""Data source names (DSN): the host, the database and the user of a PostgreSQL connection."""

_SHOWN = ("service", "host", "hostaddr", "port", "dbname", "user")


def without_secrets(dsn: str) -> str:
    """Returns the host, database and user of a valid DSN, as keywords of libpq.

    The result is for messages and contains no password.
    """
    from psycopg import conninfo  # noqa: PLC0415  # Only one engine needs it.

    keywords = conninfo.conninfo_to_dict(dsn)
    return conninfo.make_conninfo("", **{key: keywords[key] for key in _SHOWN if key in keywords})


def check_dsn(value: str) -> None:
    """Raises ValueError if `value` is not a valid DSN, or if psycopg is not installed.

    The message contains no part of `value`, because it may contain a password.
    """
    try:
        import psycopg  # noqa: PLC0415  # Only one engine needs it.
    except ImportError:
        raise ValueError('HRAG_ENGINE=postgres needs pip install "hrag[postgres]"') from None
    try:
        psycopg.conninfo.conninfo_to_dict(value)
    except psycopg.ProgrammingError:
        raise ValueError(
            "must be a URI, as in postgresql://user@host/database, or keywords, as in "
            "host=... dbname=..., as libpq reads them"
        ) from None
