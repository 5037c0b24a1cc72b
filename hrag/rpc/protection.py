"""What stands between a service and its callers; refused where it is too little.

A service that asks nobody who they are, or speaks plaintext, listens to this machine alone,
unless a variable says in words what else that means.
"""

from dataclasses import dataclass

import grpc
import structlog

from hrag.auth import Authenticate
from hrag.auth.factory import open_auth
from hrag.config import NO_AUTH_WORDS, PLAINTEXT_WORDS, CommonSettings, SettingsError
from hrag.net.addresses import is_loopback
from hrag.quota.file import open_quotas
from hrag.quota.quotas import QuotaOf
from hrag.rpc.tls import server_credentials

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Protection:
    """`authenticate` checks who calls, None lets everybody; without `credentials`, plaintext.

    `quota_of` says what bounds a tenant.
    """

    authenticate: Authenticate | None
    credentials: grpc.ServerCredentials | None
    quota_of: QuotaOf


def open_protection(settings: CommonSettings, address: str) -> Protection:
    """What the settings ask for; raises SettingsError if `address` needs more."""
    authenticate = open_auth(settings)
    credentials = server_credentials(settings)
    protection = Protection(authenticate, credentials, open_quotas(settings))
    if is_loopback(address):
        return protection
    if authenticate is None:
        _accept(
            f"HRAG_AUTH is none, and other machines reach {address}",
            "set it to api_key or jwt",
            "HRAG_INSECURE_NO_AUTH",
            NO_AUTH_WORDS,
            said=settings.insecure_no_auth,
        )
    if credentials is None:
        _accept(
            f"HRAG_TLS_CERT_FILE is not set, and other machines reach {address}",
            "set it and HRAG_TLS_KEY_FILE",
            "HRAG_INSECURE_PLAINTEXT",
            PLAINTEXT_WORDS,
            said=settings.insecure_plaintext,
        )
    return protection


def _accept(danger: str, remedy: str, variable: str, words: str, *, said: str) -> None:
    """Goes on with a warning where the operator has said what it means, else raises."""
    if said != words:
        raise SettingsError(f"{danger}; {remedy}, listen on 127.0.0.1, or set {variable}={words!r}")
    _log.warning("insecure", danger=danger, said=words)
