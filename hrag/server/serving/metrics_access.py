"""Access control of the metrics port: a token, TLS, and rules for a port open to other machines.

Metrics name no tenant, but they reveal how much a service does. If other machines can reach the
port, a token or a client certificate must be required, or the operator must acknowledge the risk.
"""

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hrag.config import METRICS_WORDS, PLAINTEXT_WORDS, CommonSettings, SettingsError
from hrag.host.addresses import is_loopback
from hrag.host.operator_files import warn_if_readable
from hrag.host.watched_file import WatchedFile
from hrag.server.serving.protection import require_acknowledgement
from hrag.server.serving.tls import server_context

_TOKEN_SETTING = "HRAG_METRICS_TOKEN_FILE"
_TOKEN = re.compile(rb"[\x21-\x7e]{16,512}")


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    """The access control of a metrics port.

    `token` and `tls` are functions that return the current token and the current TLS context.
    `token` is None if no token is needed, and `tls` is None for plaintext.
    """

    token: Callable[[], bytes] | None = None
    tls: Callable[[], ssl.SSLContext] | None = None

    def headers(self) -> Mapping[str, str]:
        """Returns the HTTP headers that a request to the metrics port needs."""
        if self.token is None:
            return {}
        return {"Authorization": f"Bearer {self.token().decode('ascii')}"}


UNRESTRICTED = MetricsAccess()


def open_metrics_access(settings: CommonSettings, address: str) -> MetricsAccess:
    """Returns the access control (token and TLS) of the metrics port at `address`, as configured.

    `address` is empty if no metrics are served. Raises SettingsError if a file is missing or
    invalid, or if `address` requires more protection than the settings provide.
    """
    access = MetricsAccess(_open_token(settings.metrics_token_file), _open_tls(settings))
    if not address or is_loopback(address):
        return access
    needs_certificate = access.tls is not None and settings.tls_client_ca_file is not None
    if access.token is None and not needs_certificate:
        require_acknowledgement(
            f"{_TOKEN_SETTING} is not set, and {address} is reachable from other machines",
            "set it",
            "HRAG_INSECURE_METRICS",
            METRICS_WORDS,
            acknowledgement=settings.insecure_metrics,
        )
    if access.token is not None and access.tls is None:
        require_acknowledgement(
            f"HRAG_METRICS_TLS is false, and the metrics' token is sent to {address}, which is "
            "reachable from other machines",
            "set it to true",
            "HRAG_INSECURE_PLAINTEXT",
            PLAINTEXT_WORDS,
            acknowledgement=settings.insecure_plaintext,
        )
    return access


def _open_token(path: Path | None) -> Callable[[], bytes] | None:
    if path is None:
        return None

    def parse(contents: Sequence[bytes]) -> bytes:
        warn_if_readable(path)
        token = contents[0].strip()
        if not _TOKEN.fullmatch(token):
            raise ValueError("a token has 16 to 512 printable ASCII characters and no spaces")
        return token

    try:
        return WatchedFile(_TOKEN_SETTING, (path,), parse)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{_TOKEN_SETTING} is {path}: {error}") from None


def _open_tls(settings: CommonSettings) -> Callable[[], ssl.SSLContext] | None:
    if not settings.metrics_tls:
        return None
    return server_context(settings)
