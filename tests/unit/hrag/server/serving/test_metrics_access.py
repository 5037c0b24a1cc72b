"""Access to metrics from other machines needs a token, TLS, or an explicit acknowledgement."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hrag.config import METRICS_WORDS, PLAINTEXT_WORDS, SettingsError
from hrag.server.serving.metrics_access import UNRESTRICTED, MetricsAccess, open_metrics_access
from tests.support.servers.pki import Authority
from tests.support.servers.servers import settings

EXPOSED = "0.0.0.0:9461"
TOKEN = "0123456789abcdef"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, object]:
    authority = Authority(tmp_path, "authority")
    pair = authority.issue()
    return {
        "HRAG_METRICS_TLS": True,
        "HRAG_TLS_CERT_FILE": pair.cert_file,
        "HRAG_TLS_KEY_FILE": pair.key_file,
        "HRAG_TLS_CLIENT_CA_FILE": authority.ca_file,
    }


def open_access(address: str, **variables: object) -> MetricsAccess:
    return open_metrics_access(settings(**variables), address)


@pytest.mark.parametrize("address", ["", "127.0.0.1:9461", "[::1]:9461"])
def test_metrics_on_loopback_need_no_protection(address):
    assert open_access(address) == UNRESTRICTED
    assert UNRESTRICTED.headers() == {}


@pytest.mark.parametrize("acknowledgement", ["", "true", METRICS_WORDS.upper(), PLAINTEXT_WORDS])
def test_an_exposed_port_needs_the_exact_words_of_the_acknowledgement(acknowledgement):
    with pytest.raises(SettingsError, match="HRAG_METRICS_TOKEN_FILE") as caught:
        open_access(EXPOSED, HRAG_INSECURE_METRICS=acknowledgement)
    assert all(part in str(caught.value) for part in (EXPOSED, METRICS_WORDS))
    assert open_access(EXPOSED, HRAG_INSECURE_METRICS=METRICS_WORDS) == UNRESTRICTED


def test_a_token_is_sent_in_plaintext_only_with_an_acknowledgement(token_file, certificates):
    token = {"HRAG_METRICS_TOKEN_FILE": token_file}
    with pytest.raises(SettingsError, match="HRAG_METRICS_TLS"):
        open_access(EXPOSED, **token)
    assert open_access(EXPOSED, **token, HRAG_INSECURE_PLAINTEXT=PLAINTEXT_WORDS).tls is None
    access = open_access(EXPOSED, **token, **certificates)
    assert access.tls is not None
    assert access.headers() == {"Authorization": f"Bearer {TOKEN}"}


def test_client_certificates_can_replace_a_metrics_token(certificates):
    assert open_access(EXPOSED, **certificates).token is None
    del certificates["HRAG_TLS_CLIENT_CA_FILE"]
    with pytest.raises(SettingsError, match="HRAG_INSECURE_METRICS"):
        open_access(EXPOSED, **certificates)


def test_metrics_over_tls_need_a_certificate_and_a_key():
    with pytest.raises(SettingsError, match="HRAG_TLS_CERT_FILE and HRAG_TLS_KEY_FILE"):
        open_access("127.0.0.1:0", HRAG_METRICS_TLS=True)


@pytest.mark.parametrize("content", [b"", b"short", b"a space is in it", b"x" * 513, b"\xff" * 20])
def test_an_invalid_metrics_token_is_refused(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match="16 to 512") as caught:
        open_access("127.0.0.1:0", HRAG_METRICS_TOKEN_FILE=path)
    assert not content or content.decode("latin-1") not in str(caught.value)
    with pytest.raises(SettingsError, match="HRAG_METRICS_TOKEN_FILE"):
        open_access("127.0.0.1:0", HRAG_METRICS_TOKEN_FILE=tmp_path / "none")


@pytest.mark.parametrize(("mode", "is_logged"), [(0o600, False), (0o440, False), (0o644, True)])
def test_a_token_that_all_users_may_read_is_logged(token_file, mode, is_logged):
    token_file.chmod(mode)
    with capture_logs() as logs:
        open_access("", HRAG_METRICS_TOKEN_FILE=token_file)
    assert [line["event"] for line in logs] == ["secret_readable"] * is_logged
    assert TOKEN not in str(logs)
    assert all(line["remedy"] == f"chmod o= {token_file}" for line in logs)
