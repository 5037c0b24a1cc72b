"""Fixtures for the tests of clients of model endpoints."""

from pathlib import Path

import pytest

from tests.support.servers.pki import Authority


@pytest.fixture(scope="session")
def authority_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a CA file that clients of model endpoints load instead of the system's CA files.

    Loading the certificate authorities of the system would take 40 ms.
    """
    return Authority(tmp_path_factory.mktemp("authority"), "only").ca_file


@pytest.fixture
def _loopback_endpoints(monkeypatch: pytest.MonkeyPatch, authority_file: Path) -> None:
    """Lets clients connect to model endpoints on the loopback interface without a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority_file))
