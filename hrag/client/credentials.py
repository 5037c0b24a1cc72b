"""The credentials and TLS files of a client, and the gRPC channels that it opens with them."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from hrag.host.addresses import ADDRESS_RULE, is_address, is_loopback
from hrag.host.certificates import check_authorities, check_pair
from hrag.values.errors import InvalidArgument
from hrag.values.ids import quoted

# The maximum length of a token. The token is part of the metadata of each call, and gRPC limits
# all metadata of a call to 8 KiB.
MAX_TOKEN_CHARS = 7000

File = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The credentials of a client: an API key or JSON Web Token, and PEM files for TLS.

    TLS is used if `ca_file` or `cert_file` is given. `ca_file` contains the certificates of the
    authority that signed the services' certificates; without it, gRPC's default root
    certificates are used. `cert_file` and `key_file` are the certificate and the private key of
    the client, for services that require a client certificate. With `insecure_plaintext`, the token
    may go to other machines without TLS, where anybody on the network can read it.

    Raises InvalidArgument for a token that a header cannot contain and for files that cannot be
    used. The message never contains the token.
    """

    token: str = field(default="", repr=False)
    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None
    insecure_plaintext: bool = False

    def __post_init__(self) -> None:
        _check_token(self.token)
        _check_files(self.ca_file, self.cert_file, self.key_file)

    @property
    def uses_tls(self) -> bool:
        """True if the connections are encrypted."""
        return self.ca_file is not None or self.cert_file is not None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The gRPC metadata of each call: the header with the token; empty without a token."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self, address: str, options: list[tuple[str, Any]]) -> grpc.Channel:
        """Returns a gRPC channel to `address`, for threads; the channel connects at its first call.

        Raises InvalidArgument if the address is not one of a service. Also raises
        InvalidArgument if the token would be sent to another machine without TLS.
        """
        credentials = self._credentials(address)
        if credentials is None:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, credentials, options)

    def aio_channel(self, address: str, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
        """Returns a gRPC channel to `address`, for asyncio; the channel connects at its first call.

        Raises InvalidArgument if the address is not one of a service. Also raises
        InvalidArgument if the token would be sent to another machine without TLS.
        """
        credentials = self._credentials(address)
        if credentials is None:
            return grpc.aio.insecure_channel(address, options)
        return grpc.aio.secure_channel(address, credentials, options)

    def _credentials(self, address: str) -> grpc.ChannelCredentials | None:
        """Returns the TLS credentials, or None if the channel is not encrypted.

        Raises InvalidArgument if the address is not one of a service. Also raises
        InvalidArgument if the token would be sent to another machine without TLS.
        """
        _check_address(address)
        if not self.uses_tls:
            if self.token and not self.insecure_plaintext and not is_loopback(address):
                raise InvalidArgument(
                    f"a token would go to {address} in plaintext, readable by anybody on the "
                    "network; give ca_file (on the command line --ca), the certificate of "
                    "the authority that signed the service's certificate; on a network that you "
                    "trust, the argument insecure_plaintext=True allows it",
                    field="token",
                )
            return None
        return grpc.ssl_channel_credentials(
            _read(self.ca_file), _read(self.key_file), _read(self.cert_file)
        )


def _check_address(address: str) -> None:
    """Raises InvalidArgument if the address cannot be one of a service.

    Without this check, gRPC would try to reach the address until the deadline of a call, and would
    write log lines during that time.
    """
    if not is_address(address):
        raise InvalidArgument(
            f"the address is {quoted(address)}; it {ADDRESS_RULE}", field="address"
        )


def _check_token(token: str) -> None:
    if len(token) > MAX_TOKEN_CHARS:
        raise InvalidArgument(
            f"token has {len(token)} characters; at most {MAX_TOKEN_CHARS} are allowed",
            field="token",
        )
    if not all("!" <= character <= "~" for character in token):
        raise InvalidArgument(
            "token has a space, a line break or another character that no API key and no "
            "JSON Web Token contains",
            field="token",
        )


def _check_files(ca_file: File | None, cert_file: File | None, key_file: File | None) -> None:
    field = "cert_file"
    try:
        if cert_file is not None and key_file is not None:
            check_pair(Path(cert_file), Path(key_file))
        elif cert_file is not None or key_file is not None:
            field, missing = "cert_file", "key_file"
            if cert_file is None:
                field, missing = missing, field
            raise ValueError(
                f"it is '{cert_file or key_file}' and needs {missing}; give both or neither "
                "(--cert and --key, or HRAG_CERT_FILE and HRAG_KEY_FILE)"
            )
        field = "ca_file"
        if ca_file is not None:
            check_authorities(Path(ca_file))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{field}: {error}", field=field) from None


def _read(path: File | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
