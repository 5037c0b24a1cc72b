"""What bounds which tenant: settings, a file's exceptions, and what is wrong in one."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hrag.config import SettingsError
from hrag.net import watched_file
from hrag.quota.file import Quotas, open_quotas
from hrag.quota.quotas import Quota
from tests.servers import settings

DEFAULT = Quota(calls_per_s=5, burst=9, max_bytes=100, max_documents=7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quotas.toml"


def _of(path: Path, text: str, tenant: str = "acme") -> Quota:
    path.write_text(text, "utf-8")
    return Quotas(DEFAULT, path)(tenant)


def test_without_settings_nothing_is_bounded():
    assert open_quotas(settings())("acme") == Quota()


def test_settings_bound_everybody():
    variables = {
        "HRAG_TENANT_CALLS_PER_S": "2.5",
        "HRAG_TENANT_BURST": "10",
        "HRAG_TENANT_MAX_BYTES": "1000",
        "HRAG_TENANT_MAX_DOCUMENTS": "20",
        "HRAG_TENANT_MAX_COLLECTIONS": "unlimited",
    }
    assert open_quotas(settings(**variables))("acme") == Quota(2.5, 10, 1000, 20, None)


def test_a_file_has_exceptions_and_the_rest_is_as_for_all(path):
    text = """
    # Acme pays for more.
    [acme]
    calls_per_s = 500
    max_bytes = "unlimited"
    max_collections = 3
    ["acme.eu"]
    burst = 1
    """
    assert _of(path, text) == Quota(500, 9, None, 7, 3)
    assert _of(path, text, "acme.eu") == Quota(5, 1, 100, 7, None)
    assert _of(path, text, "globex") == DEFAULT
    assert _of(path, "") == DEFAULT


@pytest.mark.parametrize(
    ("quota", "at_once"),
    [(Quota(), 0), (Quota(3), 3), (Quota(2.1), 3), (Quota(0.01), 1), (Quota(3, 50), 50)],
)
def test_without_a_burst_a_seconds_calls_may_come_at_once(quota, at_once):
    assert quota.burst_calls == at_once


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[acme]\nmax_bytes = 0", "['acme'] max_bytes is 0: .*greater.*1, or 'unlimited'"),
        ("[acme]\nmax_bytes = -1", "max_bytes is -1"),
        ("[acme]\nmax_documents = true", "max_documents is True"),
        ("[acme]\nmax_documents = 1.5", "max_documents is 1.5"),
        ("[acme]\nmax_collections = '9'", "max_collections is '9'"),
        (f"[acme]\nmax_bytes = {1 << 61}", "max_bytes is"),
        ("[acme]\ncalls_per_s = 0", "calls_per_s is 0"),
        ("[acme]\ncalls_per_s = nan", "calls_per_s is nan"),
        ("[acme]\ncalls_per_s = inf", "calls_per_s is inf"),
        ("[acme]\nburst = 'unlimited'", "burst is 'unlimited'"),
        ("[acme]\nmax_byte = 1", "['acme'] has 'max_byte'; allowed are calls_per_s, burst"),
        ("[acme.eu]\nburst = 1", "['acme'] has 'eu'.* must be quoted"),
        ("['a b']\nburst = 1", "['a b'] must be named by the id of a tenant"),
        ("acme = 1", "['acme'] must be a table"),
        ("[[acme]]\nburst = 1", "['acme'] must be a table"),
        ("[acme\n", "line 1"),
        ("[acme]\nburst = 1\n[acme]\nburst = 2", "acme"),
        (b"\xff", "utf-8"),
    ],
)
def test_a_wrong_file_stops_the_service_with_what_is_wrong(path, text, problem):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    pattern = problem.replace("[", r"\[")
    with pytest.raises(SettingsError, match=f"^HRAG_TENANT_QUOTAS_FILE is .*{pattern}"):
        open_quotas(settings(HRAG_TENANT_QUOTAS_FILE=path))


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_file_that_cannot_be_read_stops_the_service(path, tmp_path, kind):
    wrong = path if kind == "missing" else tmp_path
    with pytest.raises(SettingsError, match="HRAG_TENANT_QUOTAS_FILE is "):
        open_quotas(settings(HRAG_TENANT_QUOTAS_FILE=wrong))


def test_a_change_counts_and_a_wrong_one_leaves_the_last_good(path, monkeypatch):
    monkeypatch.setattr(watched_file, "_CHECK_INTERVAL_S", 0.0)
    path.write_text("[acme]\nburst = 1")
    quotas = Quotas(Quota(), path)
    assert quotas("acme").burst == 1
    path.write_text("[acme]\nburst = 22")
    assert quotas("acme").burst == 22
    path.write_text("[acme]\nburst = wrong")
    with capture_logs() as logs:
        assert quotas("acme").burst == 22
    assert [line["event"] for line in logs] == ["reload_failed"]
    path.write_text("")
    assert quotas("acme") == Quota()
