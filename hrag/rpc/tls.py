"""TLS for a server, with certificate files that may be replaced while it runs.

New connections use the current files; open connections keep theirs. Certificate and key are
replaced one after the other, so a pair that does not match is ignored until it does.
"""

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import grpc

from hrag.config import CommonSettings, SettingsError
from hrag.net import certificates
from hrag.net.certificates import check_authorities, check_pair
from hrag.net.watched_file import WatchedFile

Usable = TypeVar("Usable")


def server_credentials(settings: CommonSettings) -> grpc.ServerCredentials | None:
    """Returns None for plaintext. Raises SettingsError for files that are missing or invalid."""
    files = _configured_files(settings)
    return None if files is None else _usable(files.credentials)


def server_context(settings: CommonSettings) -> Callable[[], ssl.SSLContext] | None:
    """Returns the current TLS context of a server without gRPC; like `server_credentials`."""
    files = _configured_files(settings)
    return None if files is None else _usable(files.context)


def _configured_files(settings: CommonSettings) -> "_CertificateFiles | None":
    cert_file, key_file = settings.tls_cert_file, settings.tls_key_file
    client_ca_file = settings.tls_client_ca_file
    if cert_file is None and key_file is None and client_ca_file is None:
        return None
    if cert_file is None or key_file is None:
        raise SettingsError(
            "HRAG_TLS_CERT_FILE and HRAG_TLS_KEY_FILE must be set together, and "
            "HRAG_TLS_CLIENT_CA_FILE needs both"
        )
    return _CertificateFiles(cert_file, key_file, client_ca_file)


def _usable(open_files: Callable[[], Usable]) -> Usable:
    try:
        return open_files()
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the files of HRAG_TLS_CERT_FILE, HRAG_TLS_KEY_FILE or HRAG_TLS_CLIENT_CA_FILE "
            f"cannot be used: {error}"
        ) from None


class _CertificateFiles:
    """The server's certificate and key, and the authority that signs client certificates."""

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None) -> None:
        self._cert_file = cert_file
        self._key_file = key_file
        self._client_ca_file = client_ca_file
        self._own = (cert_file, key_file, client_ca_file)
        self._paths = [path for path in self._own if path is not None]

    def credentials(self) -> grpc.ServerCredentials:
        """Returns reloading credentials; with a `client_ca_file`, clients need certificates."""
        watched = WatchedFile(self._paths, self._read)
        current = watched()

        def fetch() -> grpc.ServerCertificateConfiguration:
            """Called at each handshake; returns None if nothing has changed."""
            nonlocal current
            latest = watched()
            if latest is current:
                return cast("grpc.ServerCertificateConfiguration", None)
            current = latest
            return latest

        return grpc.dynamic_ssl_server_credentials(
            current, fetch, require_client_authentication=self._client_ca_file is not None
        )

    def context(self) -> WatchedFile[ssl.SSLContext]:
        """Returns the present context at each call."""
        read = partial(certificates.server_context, *self._own)
        return WatchedFile(self._paths, read)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        check_pair(self._cert_file, self._key_file)
        pair = (self._key_file.read_bytes(), self._cert_file.read_bytes())
        if self._client_ca_file is None:
            return grpc.ssl_server_certificate_configuration([pair])
        check_authorities(self._client_ca_file)
        return grpc.ssl_server_certificate_configuration([pair], self._client_ca_file.read_bytes())
