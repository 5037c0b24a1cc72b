"""The PostgreSQL engine requires a valid DSN, and no error repeats its password."""

import pytest

from hrag.config import EngineSettings, SettingsError, load


def loaded(monkeypatch: pytest.MonkeyPatch, **variables: str) -> EngineSettings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load(EngineSettings)


def test_the_postgresql_engine_requires_a_dsn(monkeypatch):
    with pytest.raises(SettingsError) as refused:
        loaded(monkeypatch, HRAG_ENGINE="postgres")
    assert str(refused.value) == "HRAG_POSTGRES_DSN must be set with HRAG_ENGINE=postgres"


@pytest.mark.parametrize("variable", ["HRAG_POSTGRES_DSN", "HRAG_POSTGRES_READ_DSN"])
@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://user:secret@[::1/database",
        "postgresql://user:secret@host/%zz",
        "host=here password=very secret",
        "secret",
    ],
)
def test_a_malformed_dsn_is_refused_without_its_password(monkeypatch, variable, dsn):
    valid = {"HRAG_ENGINE": "postgres", "HRAG_POSTGRES_DSN": "dbname=hrag"}
    with pytest.raises(SettingsError) as refused:
        loaded(monkeypatch, **valid | {variable: dsn})
    assert str(refused.value).startswith(f"{variable}: must be a URI")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://user:secret@one:5432,other:5433/hrag?target_session_attrs=any",
        "host=/run/postgresql dbname=hrag sslmode=verify-full",
    ],
)
def test_every_dsn_that_libpq_can_parse_is_allowed(monkeypatch, dsn):
    settings = loaded(monkeypatch, HRAG_ENGINE="postgres", HRAG_POSTGRES_DSN=dsn)
    assert settings.postgres_dsn == dsn
    assert settings.postgres_read_dsn == ""
