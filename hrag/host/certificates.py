"""Validation of certificate files, and the TLS context of servers that do not use gRPC.

gRPC does not report that a certificate is unusable: connections fail without a reason. So the files
are validated before gRPC reads them.
"""

import ssl
from pathlib import Path


def check_pair(cert_file: Path, key_file: Path) -> None:
    """Checks that the files contain a certificate chain and its private key, in PEM.

    Raises OSError if a file cannot be read, and ValueError if the content is not usable.
    """
    _check_readable(cert_file)
    _check_readable(key_file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, _no_password)
    except ssl.SSLError as error:
        raise ValueError(
            f"{cert_file} and {key_file} must be a certificate and its private key, in PEM and "
            f"without a password ({error.reason or error})"
        ) from None


def check_authorities(ca_file: Path) -> None:
    """Checks that the file contains certificates in PEM.

    Raises OSError if the file cannot be read, and ValueError if the content is not usable.
    """
    _check_readable(ca_file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except ssl.SSLError as error:
        raise ValueError(
            f"{ca_file} must contain certificates in PEM ({error.reason or error})"
        ) from None


def server_context(cert_file: Path, key_file: Path, client_ca_file: Path | None) -> ssl.SSLContext:
    """Returns the TLS context of a server.

    With a `client_ca_file`, clients must present a certificate. Raises OSError or ValueError if a
    file is missing or invalid.
    """
    check_pair(cert_file, key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    if client_ca_file is not None:
        check_authorities(client_ca_file)
        context.load_verify_locations(client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_readable(path: Path) -> None:
    # If `ssl` cannot read a file, the error of `ssl` does not name the file. So the file is opened
    # first, because the error of `open` names the file.
    path.open("rb").close()


def _no_password() -> str:
    raise ValueError("a private key that is protected by a password cannot be used")
