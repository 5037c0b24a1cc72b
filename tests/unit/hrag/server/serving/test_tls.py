"""TLS verifies servers and clients, and reloads files that are replaced while a service runs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hrag.client import AsyncClient, Client
from hrag.config import NO_AUTH_WORDS, PLAINTEXT_WORDS, SettingsError
from hrag.errors import InvalidArgument, ServiceUnavailable
from hrag.server.serving.protection import open_protection
from tests.support.methods import servicer_of
from tests.support.servers.credentials import TENANT, new_key
from tests.support.servers.pki import Authority, Pair, with_password
from tests.support.servers.servers import RETRIEVER, serving, settings
from tests.support.until import until

EXPOSED = "0.0.0.0:50052"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "theirs")


def _files(pair: Pair, client_ca: Path | None = None) -> dict[str, object]:
    return {
        "HRAG_TLS_CERT_FILE": pair.cert_file,
        "HRAG_TLS_KEY_FILE": pair.key_file,
        "HRAG_TLS_CLIENT_CA_FILE": client_ca,
    }


@contextmanager
def _served(pair: Pair, client_ca: Path | None = None, **variables: object) -> Iterator[str]:
    with serving(servicer_of(RETRIEVER), **_files(pair, client_ca), **variables) as address:
        yield address


def _is_served(address: str, **access: object) -> bool:
    with Client(address, address, **access) as client:  # type: ignore[arg-type]
        try:
            client.server_info(timeout_s=60)
        except ServiceUnavailable:
            return False
        return True


def test_a_client_that_knows_the_authority_is_served(authority):
    with _served(authority.issue()) as address:
        assert _is_served(address, ca_file=authority.ca_file)


async def test_the_asyncio_client_is_served_too(authority):
    with _served(authority.issue()) as address:
        async with AsyncClient(address, address, ca_file=str(authority.ca_file)) as client:
            await client.server_info()


def test_a_certificate_of_another_authority_is_rejected(authority, stranger):
    with _served(stranger.issue()) as address:
        assert not _is_served(address, ca_file=authority.ca_file)


def test_plaintext_clients_are_not_served(authority):
    with _served(authority.issue()) as address:
        assert not _is_served(address)


def test_a_token_is_sent_over_tls(authority, tmp_path):
    key = new_key(tmp_path / "keys.json")
    variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": tmp_path / "keys.json"}
    with (
        _served(authority.issue(), **variables) as address,
        Client(address, address, token=key, ca_file=authority.ca_file) as client,
    ):
        assert client.batch_search([]) == []
        client.get_chunk(TENANT, "d#0.0")


def test_clients_without_a_required_certificate_are_not_served(authority, stranger):
    known_client = authority.issue("client")
    with _served(authority.issue(), authority.ca_file) as address:
        assert _is_served(address, ca_file=authority.ca_file, **_access_with(known_client))
        assert not _is_served(address, ca_file=authority.ca_file)
        unknown_client = stranger.issue("client")
        assert not _is_served(address, ca_file=authority.ca_file, **_access_with(unknown_client))


def _access_with(pair: Pair) -> dict[str, Path]:
    """Returns the arguments with which a client presents a certificate."""
    return {"cert_file": pair.cert_file, "key_file": pair.key_file}


def _replace(pair: Pair, replacement: Pair) -> None:
    pair.cert_file.write_bytes(replacement.cert_file.read_bytes())
    pair.key_file.write_bytes(replacement.key_file.read_bytes())


def test_new_connections_get_the_new_certificate_after_a_replacement(authority, stranger):
    pair = authority.issue()
    with (
        _served(pair) as address,
        Client(address, address, ca_file=authority.ca_file) as early_client,
    ):
        early_client.server_info()
        _replace(pair, stranger.issue())
        until(lambda: _is_served(address, ca_file=stranger.ca_file))
        assert not _is_served(address, ca_file=authority.ca_file)
        early_client.server_info()  # Its connection was opened before the replacement.


def test_a_new_client_authority_applies_to_new_connections(authority, stranger):
    client_ca = authority.ca_file.with_name("clients.pem")
    client_ca.write_bytes(authority.ca_file.read_bytes())
    before, after = authority.issue("client"), stranger.issue("client")
    with _served(authority.issue(), client_ca) as address:
        assert _is_served(address, ca_file=authority.ca_file, **_access_with(before))
        client_ca.write_bytes(stranger.ca_file.read_bytes())
        until(lambda: not _is_served(address, ca_file=authority.ca_file, **_access_with(before)))
        assert _is_served(address, ca_file=authority.ca_file, **_access_with(after))


@pytest.mark.parametrize("damage", [b"no certificate", None])
def test_an_incomplete_replacement_is_logged_and_changes_nothing(authority, stranger, damage):
    """If `damage` is None, the certificate is new and the key is still old."""
    pair, replacement = authority.issue(), stranger.issue()
    with capture_logs() as logs, _served(pair) as address:
        content = replacement.cert_file.read_bytes() if damage is None else damage
        pair.cert_file.write_bytes(content)

        def is_served_after_the_failed_reload() -> bool:
            """Makes the server check its files by connecting. Returns True if a reload failed."""
            assert _is_served(address, ca_file=authority.ca_file)
            return _reloads(logs) == ["reload_failed"]

        until(is_served_after_the_failed_reload)
        assert _is_served(address, ca_file=authority.ca_file)
        _replace(pair, replacement)
        until(lambda: _is_served(address, ca_file=stranger.ca_file))
    assert _reloads(logs) == ["reload_failed", "reloaded"]


def _reloads(logs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the log events about successful and failed reloads of files."""
    return [line["event"] for line in logs if "load" in line["event"]]


def _refusal(**variables: object) -> str:
    with pytest.raises(SettingsError) as caught:
        open_protection(settings(**variables), "127.0.0.1:50052")
    return str(caught.value)


def test_invalid_files_prevent_the_start(authority, tmp_path):
    pair, other_pair = authority.issue(), authority.issue()
    valid_files = _files(pair, authority.ca_file)
    empty = tmp_path / "empty"
    empty.touch()
    assert "it needs HRAG_TLS_KEY_FILE" in _refusal(**valid_files | {"HRAG_TLS_KEY_FILE": None})
    assert "it needs HRAG_TLS_CERT_FILE" in _refusal(HRAG_TLS_CLIENT_CA_FILE=authority.ca_file)
    assert "private key" in _refusal(**valid_files | {"HRAG_TLS_KEY_FILE": other_pair.key_file})
    assert "private key" in _refusal(**valid_files | {"HRAG_TLS_CERT_FILE": empty})
    locked = tmp_path / "locked.key"
    locked.write_bytes(with_password(pair.key_file.read_bytes()))
    assert "password" in _refusal(**valid_files | {"HRAG_TLS_KEY_FILE": locked})
    assert str(empty) in _refusal(**valid_files | {"HRAG_TLS_CLIENT_CA_FILE": empty})
    missing = tmp_path / "missing"
    for variable in valid_files:
        assert f"No such file or directory: '{missing}'" in _refusal(
            **valid_files | {variable: missing}
        )


@pytest.mark.parametrize("acknowledgement", ["", "yes", NO_AUTH_WORDS])
def test_plaintext_to_other_machines_needs_an_acknowledgement(acknowledgement, tmp_path):
    new_key(tmp_path / "keys.json")
    variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": tmp_path / "keys.json"}
    with pytest.raises(SettingsError, match=f"HRAG_INSECURE_PLAINTEXT='{PLAINTEXT_WORDS}'"):
        open_protection(settings(**variables, HRAG_INSECURE_PLAINTEXT=acknowledgement), EXPOSED)
    with capture_logs() as logs:
        open_protection(settings(**variables, HRAG_INSECURE_PLAINTEXT=PLAINTEXT_WORDS), EXPOSED)
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("insecure_configuration", "warning")
    ]


def test_tls_with_keys_may_listen_on_any_address(authority, tmp_path):
    new_key(tmp_path / "keys.json")
    variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": tmp_path / "keys.json"}
    protection = open_protection(settings(**variables, **_files(authority.issue())), EXPOSED)
    assert protection.authenticate is not None
    assert protection.credentials is not None
    with pytest.raises(SettingsError, match="HRAG_INSECURE_NO_AUTH"):
        open_protection(settings(**_files(authority.issue(), authority.ca_file)), EXPOSED)


@pytest.mark.parametrize(
    ("field", "access", "message"),
    [
        ("ca_file", {"ca_file": "missing"}, "No such file"),
        ("ca_file", {"ca_file": "empty"}, "must contain certificates"),
        ("cert_file", {"cert_file": "cert"}, "and needs key_file"),
        ("key_file", {"key_file": "key"}, "and needs cert_file"),
        ("cert_file", {"cert_file": "cert", "key_file": "other"}, "its private key"),
        ("cert_file", {"cert_file": "cert", "key_file": "missing"}, "No such file"),
    ],
)
def test_the_error_of_a_client_names_the_invalid_file(authority, tmp_path, field, access, message):
    pair = authority.issue()
    files = {
        "missing": tmp_path / "missing",
        "empty": tmp_path / "empty",
        "cert": pair.cert_file,
        "key": pair.key_file,
        "other": authority.issue().key_file,
    }
    files["empty"].touch()
    with pytest.raises(InvalidArgument, match=re.escape(message)) as caught:
        Client(**{name: files[kind] for name, kind in access.items()})
    assert caught.value.field == field


def test_a_private_key_that_all_users_may_read_is_logged(authority):
    pair = authority.issue()
    for mode, expected in ((0o640, []), (0o604, [f"chmod o= {pair.key_file}"])):
        pair.key_file.chmod(mode)
        with capture_logs() as logs:
            open_protection(settings(**_files(pair)), "127.0.0.1:0")
        assert [line["remedy"] for line in logs if line["event"] == "secret_readable"] == expected
