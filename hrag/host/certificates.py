"""Validation of certificate files, and the TLS context of servers that do not use gRPC.

gRPC does not report that a certificate is unusable: connections fail without a reason. So the files
are validated before gRPC uses them.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple


class PemFile(NamedTuple):
    """A file that was read: its path, for error messages, and its content."""

    path: Path
    content: bytes


def check_pair(cert_file: Path, key_file: Path) -> None:
    """Checks that the files contain a certificate chain and its private key, in PEM.

    Raises OSError if a file cannot be read, and ValueError if the content is not usable.
    """
    _check_readable(cert_file)
    _check_readable(key_file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, _no_password)
    except ssl.SSLError as error:
        raise _invalid_pair(cert_file, key_file, error) from None


def check_authorities(ca_file: Path) -> None:
    """Checks that the file contains certificates in PEM.

    Raises OSError if the file cannot be read, and ValueError if the content is not usable.
    """
    _check_readable(ca_file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except ssl.SSLError as error:
        raise _invalid_authorities(ca_file, error) from None


def server_context(cert: PemFile, key: PemFile, client_ca: PemFile | None = None) -> ssl.SSLContext:
    """Returns the TLS context of a server.

    With a `client_ca`, clients must present a certificate. Raises ValueError if the content of a
    file is not usable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with ExitStack() as copies:
        cert_copy, key_copy = (
            copies.enter_context(_in_memory(file.content)) for file in (cert, key)
        )
        try:
            context.load_cert_chain(cert_copy, key_copy, _no_password)
        except ssl.SSLError as error:
            raise _invalid_pair(cert.path, key.path, error) from None
        if client_ca is not None:
            try:
                context.load_verify_locations(copies.enter_context(_in_memory(client_ca.content)))
            except ssl.SSLError as error:
                raise _invalid_authorities(client_ca.path, error) from None
            context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def _in_memory(content: bytes) -> Iterator[Path]:
    """Yields the path of a file in memory with this content, for the `with` block.

    `ssl` reads certificates and keys only from files. If it read the original file again, the file
    could have changed.
    """
    with os.fdopen(os.memfd_create("pem"), "wb", buffering=0) as file:
        file.write(content)
        yield Path(f"/proc/self/fd/{file.fileno()}")


def _invalid_pair(cert_file: Path, key_file: Path, error: ssl.SSLError) -> ValueError:
    return ValueError(
        f"{cert_file} and {key_file} must be a certificate and its private key, in PEM and "
        f"without a password ({error.reason or error})"
    )


def _invalid_authorities(ca_file: Path, error: ssl.SSLError) -> ValueError:
    return ValueError(f"{ca_file} must contain certificates in PEM ({error.reason or error})")


def _check_readable(path: Path) -> None:
    # If `ssl` cannot read a file, the error of `ssl` does not name the file. So the file is opened
    # first, because the error of `open` names the file.
    path.open("rb").close()


def _no_password() -> str:
    raise ValueError("a private key that is protected by a password cannot be used")
