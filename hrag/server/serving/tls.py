"""TLS for a server, with certificate files that may be replaced while the server runs.

New connections use the current files. Open connections keep the certificate with which they
started. Certificate and key are replaced one after the other, so for a moment they may not match.
Until they match, the previous certificate and the previous key stay in use.
"""

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import grpc

from hrag.config import CommonSettings, SettingsError
from hrag.host import certificates
from hrag.host.certificates import PemFile
from hrag.host.operator_files import warn_if_readable
from hrag.host.watched_file import WatchedFile

Usable = TypeVar("Usable")


def server_credentials(settings: CommonSettings) -> grpc.ServerCredentials | None:
    """Returns the TLS credentials for a gRPC server; None for plaintext.

    Raises SettingsError if a file is missing or invalid.
    """
    files = _configured_files(settings)
    return None if files is None else _open_or_raise(files.credentials)


def server_context(settings: CommonSettings) -> Callable[[], ssl.SSLContext] | None:
    """Returns a function that returns the current TLS context, for a server other than gRPC's.

    Returns None for plaintext. Raises SettingsError if a file is missing or invalid.
    """
    files = _configured_files(settings)
    return None if files is None else _open_or_raise(files.context)


def _configured_files(settings: CommonSettings) -> "_CertificateFiles | None":
    cert_file, key_file = settings.tls_cert_file, settings.tls_key_file
    # The settings never contain only one of the two files.
    if cert_file is None or key_file is None:
        return None
    return _CertificateFiles(cert_file, key_file, settings.tls_client_ca_file)


def _open_or_raise(open_files: Callable[[], Usable]) -> Usable:
    try:
        return open_files()
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the files of HRAG_TLS_CERT_FILE, HRAG_TLS_KEY_FILE or HRAG_TLS_CLIENT_CA_FILE "
            f"cannot be used: {error}"
        ) from None


class _CertificateFiles(NamedTuple):
    """The files with the server's certificate, its key, and the CA of client certificates."""

    cert: Path
    key: Path
    client_ca: Path | None

    @property
    def _paths(self) -> Sequence[Path]:
        return [path for path in self if path is not None]

    def credentials(self) -> grpc.ServerCredentials:
        """Returns gRPC's TLS credentials, which read the files again when they change.

        With a `client_ca`, clients must present a certificate.
        """
        watched = self._watched(self._configuration)
        current = watched()

        def fetch() -> grpc.ServerCertificateConfiguration:
            """Returns the new certificates, or None if they have not changed since the last call.

            gRPC calls this function at each handshake.
            """
            nonlocal current
            latest = watched()
            if latest is current:
                return cast("grpc.ServerCertificateConfiguration", None)
            current = latest
            return latest

        return grpc.dynamic_ssl_server_credentials(
            current, fetch, require_client_authentication=self.client_ca is not None
        )

    def context(self) -> WatchedFile[ssl.SSLContext]:
        """Returns a callable object. Each call of this object returns the current TLS context."""
        return self._watched(self._context)

    def _watched(self, parse: Callable[[Sequence[bytes]], Usable]) -> WatchedFile[Usable]:
        return WatchedFile("HRAG_TLS_CERT_FILE", self._paths, parse)

    def _context(self, contents: Sequence[bytes]) -> ssl.SSLContext:
        warn_if_readable(self.key)
        files = map(PemFile, self._paths, contents)
        return certificates.server_context(*files)

    def _configuration(self, contents: Sequence[bytes]) -> grpc.ServerCertificateConfiguration:
        self._context(contents)  # It validates the contents, which gRPC does not do.
        cert, key, *client_ca = contents
        return grpc.ssl_server_certificate_configuration([(key, cert)], *client_ca)
