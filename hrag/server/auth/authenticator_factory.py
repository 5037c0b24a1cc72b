"""Creates the function that verifies the credentials of callers, from the settings."""

from typing import TypeVar

from hrag.config import CommonSettings, SettingsError
from hrag.server.auth import Authenticate
from hrag.server.auth.api_keys import ApiKeys

Value = TypeVar("Value")


def open_auth(settings: CommonSettings) -> Authenticate | None:
    """Returns the function that verifies credentials; None if HRAG_AUTH is `none`.

    Reads the file of API keys or of signing keys that the settings name. Raises SettingsError if a
    setting is missing, or if the file is missing or invalid.
    """
    if settings.auth == "none":
        return None
    if settings.auth == "api_key":
        return _open_keys(settings)
    return _open_tokens(settings)


def _open_keys(settings: CommonSettings) -> Authenticate:
    path = _require("HRAG_API_KEYS_FILE", settings.api_keys_file, settings)
    try:
        return ApiKeys(path)
    except FileNotFoundError:
        raise SettingsError(
            f"HRAG_API_KEYS_FILE is {path}: there is no such file; create it with: hrag keys create"
        ) from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"HRAG_API_KEYS_FILE is {path}: {error}") from None


def _open_tokens(settings: CommonSettings) -> Authenticate:
    from hrag.server.auth.web_tokens import TokenPolicy, WebTokens  # noqa: PLC0415  # It loads cryptography, which only tokens need.

    path = _require("HRAG_JWT_JWKS_FILE", settings.jwt_jwks_file, settings)
    policy = TokenPolicy(
        issuer=_require("HRAG_JWT_ISSUER", settings.jwt_issuer, settings),
        audience=_require("HRAG_JWT_AUDIENCE", settings.jwt_audience, settings),
        leeway_s=settings.jwt_leeway_s,
        tenants_claim=settings.jwt_tenants_claim,
        role_claim=settings.jwt_role_claim,
    )
    try:
        return WebTokens(path, policy)
    except (OSError, ValueError) as error:
        raise SettingsError(f"HRAG_JWT_JWKS_FILE is {path}: {error}") from None


def _require(variable: str, value: Value | None, settings: CommonSettings) -> Value:
    if not value:
        raise SettingsError(f"{variable} is not set; HRAG_AUTH={settings.auth} requires it")
    return value
