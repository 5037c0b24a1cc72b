"""The services that a client calls: where they are, what is sent to them, and hints for errors.

The hints are the same in Python and on the command line. So they name the argument of `Client` and
the option of the command.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

import grpc

from hrag.client.credentials import ClientCredentials
from hrag.host.addresses import dial_address
from hrag.values.errors import HragError, InternalError, ServiceUnavailable, Unauthenticated

INDEXER_ADDRESS = "127.0.0.1:50051"
RETRIEVER_ADDRESS = "127.0.0.1:50052"

_ADDRESSES = {
    "indexer": ("HRAG_INDEXER_ADDRESS", INDEXER_ADDRESS),
    "retriever": ("HRAG_RETRIEVER_ADDRESS", RETRIEVER_ADDRESS),
}
_TOKEN = "HRAG_TOKEN"
# If a connection failed for one of these reasons, TLS cannot be the cause.
_NO_TLS_PROBLEMS = ("refused", "DNS resolution failed", "hostname lookup error", "No such file")
# gRPC writes this if the first bytes of a server are not those of HTTP/2.
_HTTP_SERVER = "Expected SETTINGS frame as the first frame"


@dataclass(frozen=True, slots=True)
class Target:
    """A service with its address, and the credentials that are sent to this address.

    `withholds_token` is True if the environment has a token that is not sent to this address.
    """

    service: str
    address: str
    credentials: ClientCredentials
    withholds_token: bool

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The gRPC metadata of each call of the service."""
        return self.credentials.metadata

    def explained(self, error: HragError, failure: grpc.RpcError) -> HragError:
        """Returns the error of a failed call with a hint for the caller, if there is one."""
        where, message = f"the {self.service} at {self.address}", error.message
        if isinstance(error, ServiceUnavailable):
            start = "" if _HTTP_SERVER in message else "; start both services with: hrag serve"
            error.message = (
                f"cannot reach {where}{start}{self.connection_hint(message)} ({message})"
            )
        elif isinstance(error, Unauthenticated):
            error.message = f"{where}: {message}; {self._token_hint()}"
        elif isinstance(error, InternalError) and _is_unknown_method(failure):
            error.message = (
                f"{where} does not know this call: the addresses of indexer and retriever "
                "(--indexer and --retriever) may be mixed up, or another program or version of "
                f"hrag listens there ({message})"
            )
        return error

    def connection_hint(self, message: str) -> str:
        """Returns what the reason may be if gRPC cannot connect and gives `message` as its reason.

        The hint begins with "; ". It is "" if the message says enough.
        """
        if _HTTP_SERVER in message:
            return (
                f"; an HTTP server answers there, such as the gateway of hrag; the {self.service} "
                "speaks gRPC, at another address"
            )
        if any(problem in message for problem in _NO_TLS_PROBLEMS):
            return ""
        if self.credentials.uses_tls:
            return (
                "; it may serve without TLS, or with a certificate that ca_file (--ca) does not "
                "accept"
            )
        return "; if it serves with TLS, give ca_file (on the command line --ca)"

    def _token_hint(self) -> str:
        if self.credentials.token:
            return (
                "the service does not accept the key or token that was sent: it is the argument "
                f"token (on the command line --token) or {_TOKEN}"
            )
        hint = "give a key or a token as token (on the command line --token)"
        if self.withholds_token:
            hint += f"; {_TOKEN} is not sent to an address that is passed as an argument"
        return hint


def targets(
    indexer: str | None, retriever: str | None, token: str | None, credentials: ClientCredentials
) -> dict[str, Target]:
    """Returns the services by name. Reads the environment for arguments that are None.

    An address that is None is that of HRAG_INDEXER_ADDRESS or HRAG_RETRIEVER_ADDRESS, or else the
    default. If `token` is None, HRAG_TOKEN is the token for such addresses, and no token is sent to
    addresses that are passed. `credentials` has everything but the token. Raises InvalidArgument
    for a token that cannot be sent.
    """
    return {
        service: _target(service, address, token, credentials)
        for service, address in (("indexer", indexer), ("retriever", retriever))
    }


def _target(
    service: str, address: str | None, token: str | None, credentials: ClientCredentials
) -> Target:
    token_of_environment = os.environ.get(_TOKEN, "")
    withholds_token = bool(token_of_environment) and token is None and address is not None
    if token is None:
        token = "" if withholds_token else token_of_environment
    if address is None:
        variable, default = _ADDRESSES[service]
        address = dial_address(os.environ.get(variable) or default)
    return Target(service, address, replace(credentials, token=token), withholds_token)


def _is_unknown_method(failure: Any) -> bool:
    return bool(failure.code() is grpc.StatusCode.UNIMPLEMENTED)
