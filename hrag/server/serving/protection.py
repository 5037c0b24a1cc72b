"""The access control of a service: authentication, TLS and quotas.

A service without authentication or without TLS may listen on loopback only. An operator who wants
to listen on another address must acknowledge the risk, by setting an environment variable to the
sentence that describes the risk.
"""

from dataclasses import dataclass

import grpc
import structlog

from hrag.config import NO_AUTH_WORDS, PLAINTEXT_WORDS, CommonSettings, SettingsError
from hrag.host.addresses import is_loopback
from hrag.server.auth import Authenticate
from hrag.server.auth.authenticator_factory import open_auth
from hrag.server.quota_file import open_quotas
from hrag.server.serving.tls import server_credentials
from hrag.values.quotas import QuotaOf

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Protection:
    """How a service checks and limits its callers.

    `authenticate` verifies the credential of a caller; it is None if no credential is needed.
    `credentials` are the TLS credentials of the server; they are None for plaintext. `quota_of`
    returns the quota of a tenant.
    """

    authenticate: Authenticate | None
    credentials: grpc.ServerCredentials | None
    quota_of: QuotaOf


def open_protection(settings: CommonSettings, address: str) -> Protection:
    """Returns the configured protection of a service that listens at `address`.

    Raises SettingsError if a setting or a file is invalid, or if `address` requires authentication
    or TLS that is not configured.
    """
    authenticate = open_auth(settings)
    credentials = server_credentials(settings)
    protection = Protection(authenticate, credentials, open_quotas(settings))
    require_protection(settings, address)
    return protection


def require_protection(settings: CommonSettings, address: str) -> None:
    """Raises SettingsError if `address` requires authentication or TLS that is not configured."""
    if is_loopback(address):
        return
    if settings.auth == "none":
        require_acknowledgement(
            f"HRAG_AUTH is none, and {address} is reachable from other machines",
            "set it to api_key or jwt",
            "HRAG_INSECURE_NO_AUTH",
            NO_AUTH_WORDS,
            acknowledgement=settings.insecure_no_auth,
        )
    if settings.tls_cert_file is None:
        require_acknowledgement(
            f"HRAG_TLS_CERT_FILE is not set, and {address} is reachable from other machines",
            "set it and HRAG_TLS_KEY_FILE",
            "HRAG_INSECURE_PLAINTEXT",
            PLAINTEXT_WORDS,
            acknowledgement=settings.insecure_plaintext,
        )


def require_acknowledgement(
    risk: str, remedy: str, variable: str, sentence: str, *, acknowledgement: str
) -> None:
    """Logs a warning if the operator acknowledged the risk, else raises SettingsError.

    The operator acknowledges a risk by setting the environment variable `variable` to `sentence`.
    `acknowledgement` is the value of this variable. `remedy` says how to remove the risk instead.
    """
    if acknowledgement != sentence:
        raise SettingsError(
            f"{risk}; {remedy}, listen on 127.0.0.1, or set {variable}={sentence!r}"
        )
    _log.warning("insecure_configuration", risk=risk, acknowledged=sentence)
