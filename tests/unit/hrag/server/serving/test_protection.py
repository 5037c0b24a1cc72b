"""A service on an address other than loopback needs credentials or an explicit acknowledgement."""

import json
from pathlib import Path

import pytest

from hrag.config import NO_AUTH_WORDS, SettingsError
from hrag.server.auth.api_keys import ApiKeys
from hrag.server.auth.web_tokens import WebTokens
from hrag.server.serving.protection import Protection, open_protection
from tests.support.servers.credentials import AUDIENCE, ISSUER, new_issuer, new_key, write_jwks
from tests.support.servers.servers import settings

LOCAL = "127.0.0.1:50051"
EXPOSED = "0.0.0.0:50051"


def open_service(address: str = LOCAL, **variables: object) -> Protection:
    return open_protection(settings(**variables), address)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    new_key(tmp_path / "keys.json")
    return tmp_path / "keys.json"


@pytest.fixture
def jwt_settings(tmp_path: Path) -> dict[str, object]:
    return {
        "HRAG_AUTH": "jwt",
        "HRAG_JWT_JWKS_FILE": write_jwks(tmp_path / "jwks.json", new_issuer()),
        "HRAG_JWT_ISSUER": ISSUER,
        "HRAG_JWT_AUDIENCE": AUDIENCE,
    }


def test_loopback_needs_no_credentials():
    assert open_service().authenticate is None


@pytest.mark.parametrize(
    "acknowledgement", ["", "true", "yes", NO_AUTH_WORDS.upper(), f"{NO_AUTH_WORDS}."]
)
def test_other_addresses_need_credentials_or_an_acknowledgement(acknowledgement):
    with pytest.raises(SettingsError) as caught:
        open_service(EXPOSED, HRAG_INSECURE_NO_AUTH=acknowledgement)
    parts = ("HRAG_AUTH is none", EXPOSED, "HRAG_INSECURE_NO_AUTH", NO_AUTH_WORDS)
    assert all(part in str(caught.value) for part in parts)


def test_configured_credential_files_are_opened(key_file, jwt_settings):
    protection = open_service(HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=key_file)
    assert isinstance(protection.authenticate, ApiKeys)
    assert isinstance(open_service(**jwt_settings).authenticate, WebTokens)


@pytest.mark.parametrize("variable", ["HRAG_JWT_JWKS_FILE", "HRAG_JWT_ISSUER", "HRAG_JWT_AUDIENCE"])
def test_every_setting_that_web_tokens_need_must_be_set(jwt_settings, variable):
    del jwt_settings[variable]
    with pytest.raises(SettingsError, match=f"{variable} is not set; HRAG_AUTH=jwt requires it"):
        open_service(**jwt_settings)


def test_an_invalid_credential_file_prevents_the_start(tmp_path, jwt_settings):
    path = tmp_path / "file.json"
    with pytest.raises(SettingsError, match="HRAG_API_KEYS_FILE is not set"):
        open_service(HRAG_AUTH="api_key")
    with pytest.raises(SettingsError, match=r"HRAG_API_KEYS_FILE is .*hrag keys create"):
        open_service(HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=path)
    path.write_text(json.dumps({"keys": [{"id": "x"}]}), "utf-8")
    with pytest.raises(SettingsError, match=r"HRAG_API_KEYS_FILE is .*keys\.0"):
        open_service(HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=path)
    with pytest.raises(SettingsError, match=r"HRAG_API_KEYS_FILE is .*Is a directory"):
        open_service(HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=tmp_path)
    path.write_text('{"keys": []}', "utf-8")
    with pytest.raises(SettingsError, match=r"HRAG_JWT_JWKS_FILE is .*no public key"):
        open_service(**{**jwt_settings, "HRAG_JWT_JWKS_FILE": path})
