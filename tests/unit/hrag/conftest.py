"""Fixtures that tests of endpoints share."""

from pathlib import Path

import pytest

from tests.support.servers.pki import Authority


@pytest.fixture(scope="session")
def authority_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only authority that clients of endpoints read. The system's authorities take 40 ms."""
    return Authority(tmp_path_factory.mktemp("authority"), "only").ca_file


@pytest.fixture
def _dialling(monkeypatch: pytest.MonkeyPatch, authority_file: Path) -> None:
    """Lets clients reach endpoints on the loopback interface without a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority_file))
