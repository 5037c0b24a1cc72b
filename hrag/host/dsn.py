"""Data source names: which database, where, and as whom."""

_SHOWN = ("service", "host", "hostaddr", "port", "dbname", "user")


def without_secrets(dsn: str) -> str:
    """Returns where a well-formed DSN leads and as whom, as keywords of libpq, for people."""
    from psycopg import conninfo  # noqa: PLC0415  # Only one engine needs it.

    found = conninfo.conninfo_to_dict(dsn)
    return conninfo.make_conninfo("", **{key: found[key] for key in _SHOWN if key in found})


def check_dsn(value: str) -> None:
    """Raises ValueError, with nothing of `value` in its message: it may hold a password."""
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
