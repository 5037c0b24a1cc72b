"""A tenant has the quota of the settings, which a quota file overrides for its tenants."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hrag.config import SettingsError
from hrag.server.quota_file import Quotas, open_quotas
from hrag.values.quotas import Quota
from tests.support.servers.servers import settings
from tests.support.until import until

DEFAULT = Quota(calls_per_s=5, burst=9, max_bytes=100, max_documents=7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quotas.toml"


def _quota_in_file(path: Path, text: str, tenant: str = "acme") -> Quota:
    path.write_text(text, "utf-8")
    return Quotas(DEFAULT, path)(tenant)


def test_quotas_are_unlimited_by_default():
    assert open_quotas(settings())("acme") == Quota()


def test_the_quota_of_the_settings_applies_to_every_tenant():
    variables = {
        "HRAG_TENANT_CALLS_PER_S": "2.5",
        "HRAG_TENANT_BURST": "10",
        "HRAG_TENANT_MAX_BYTES": "1000",
        "HRAG_TENANT_MAX_DOCUMENTS": "20",
        "HRAG_TENANT_MAX_COLLECTIONS": "unlimited",
    }
    assert open_quotas(settings(**variables))("acme") == Quota(2.5, 10, 1000, 20, None)


def test_a_file_overrides_the_defaults_of_its_tenants(path):
    text = """
    # Acme pays for more.
    [acme]
    calls_per_s = 500
    max_bytes = "unlimited"
    max_collections = 3
    ["acme.eu"]
    burst = 1
    """
    assert _quota_in_file(path, text) == Quota(500, 9, None, 7, 3)
    assert _quota_in_file(path, text, "acme.eu") == Quota(5, 1, 100, 7, None)
    assert _quota_in_file(path, text, "globex") == DEFAULT
    assert _quota_in_file(path, "") == DEFAULT


@pytest.mark.parametrize(
    ("quota", "burst_calls"),
    [(Quota(), 0), (Quota(3), 3), (Quota(2.1), 3), (Quota(0.01), 1), (Quota(3, 50), 50)],
)
def test_the_default_burst_is_the_calls_of_one_second(quota, burst_calls):
    assert quota.burst_calls == burst_calls


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
        (f"a = {'[' * 100_000}", "nested too deep"),
    ],
)
def test_an_invalid_file_stops_the_service_with_the_reason(path, text, problem):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    pattern = problem.replace("[", r"\[")
    with pytest.raises(SettingsError, match=f"^HRAG_TENANT_QUOTAS_FILE is .*{pattern}"):
        open_quotas(settings(HRAG_TENANT_QUOTAS_FILE=path))


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_an_unreadable_file_stops_the_service(path, tmp_path, kind):
    unreadable = path if kind == "missing" else tmp_path
    with pytest.raises(SettingsError, match="HRAG_TENANT_QUOTAS_FILE is "):
        open_quotas(settings(HRAG_TENANT_QUOTAS_FILE=unreadable))


def test_a_valid_change_of_the_file_is_applied_and_an_invalid_change_is_ignored(path):
    path.write_text("[acme]\nburst = 1")
    quotas = Quotas(Quota(), path)
    assert quotas("acme").burst == 1
    path.write_text("[acme]\nburst = 22")
    until(lambda: quotas("acme").burst == 22)
    with capture_logs() as logs:
        path.write_text("[acme]\nburst = wrong")
        until(lambda: bool(logs))
    assert [line["event"] for line in logs] == ["reload_failed"]
    assert quotas("acme").burst == 22
    path.write_text("")
    until(lambda: quotas("acme") == Quota())
