"""A client's credentials and TLS files, and the channels opened with them."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from hrag.host.addresses import MAX_PORT, is_loopback
from hrag.host.certificates import check_authorities, check_pair
from hrag.values.errors import InvalidArgument
from hrag.values.ids import quoted

MAX_TOKEN_CHARS = 7000  # All metadata of a call travels in 8 KiB.

File = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class Access:
    """An API key or JSON Web Token, and PEM files; with `ca_file` or `cert_file`, TLS is used.

    `ca_file` has the certificates of the services' authority; without it, gRPC's default roots
    count. `cert_file` and `key_file` are the client's own pair, for services that ask for one.

    Raises InvalidArgument for a token that no header can carry and for files that cannot be
    used. The message never contains the token.
    """

    token: str = field(default="", repr=False)
    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None

    def __post_init__(self) -> None:
        _check_token(self.token)
        _check_files(self.ca_file, self.cert_file, self.key_file)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """gRPC metadata to send with each call: the credential, or nothing."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self, address: str, options: list[tuple[str, Any]]) -> grpc.Channel:
        """Returns a channel for threads, not connected yet.

        Raises InvalidArgument for an address that nobody can have, and if the token would
        leave this machine without TLS.
        """
        credentials = self._credentials(address)
        if credentials is None:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, credentials, options)

    def aio_channel(self, address: str, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
        """As `channel`, for asyncio."""
        credentials = self._credentials(address)
        if credentials is None:
            return grpc.aio.insecure_channel(address, options)
        return grpc.aio.secure_channel(address, credentials, options)

    def _credentials(self, address: str) -> grpc.ChannelCredentials | None:
        """None for plaintext."""
        _check_address(address)
        if self.ca_file is None and self.cert_file is None:
            if self.token and not is_loopback(address):
                raise InvalidArgument(
                    f"a token would go to {address} in plaintext, readable by anybody on the "
                    "network; give ca_file (on the command line --ca), the certificate of "
                    "the authority that signed the service's",
                    field="token",
                )
            return None
        return grpc.ssl_channel_credentials(
            _read(self.ca_file), _read(self.key_file), _read(self.cert_file)
        )


def _check_address(address: str) -> None:
    """Refuses what gRPC would try to reach until the deadline, with lines of its own in the log."""
    _, colon, port = address.rpartition(":")
    if not address or (colon and port.isdecimal() and int(port) > MAX_PORT):
        raise InvalidArgument(
            f"the address is {quoted(address)}; it must be host:port, with a port up to {MAX_PORT}",
            field="address",
        )


def _check_token(token: str) -> None:
    if len(token) > MAX_TOKEN_CHARS:
        raise InvalidArgument(
            f"token has {len(token)} characters; it may have {MAX_TOKEN_CHARS}", field="token"
        )
    if not all("!" <= character <= "~" for character in token):
        raise InvalidArgument(
            "token has a space, a line break or another character that no key or token has",
            field="token",
        )


def _check_files(ca_file: File | None, cert_file: File | None, key_file: File | None) -> None:
    field = "cert_file"
    try:
        if cert_file is not None and key_file is not None:
            check_pair(Path(cert_file), Path(key_file))
        elif cert_file is not None or key_file is not None:
            raise ValueError("cert_file and key_file go together; give both or neither")
        field = "ca_file"
        if ca_file is not None:
            check_authorities(Path(ca_file))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{field}: {error}", field=field) from None


def _read(path: File | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
