"""The options for a connection to the services, and a client whose errors name the addresses."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hrag.cli.options.groups import option_group
from hrag.cli.terminal.console import Failure
from hrag.host.addresses import dial_address
from hrag.values.errors import InternalError, ServiceUnavailable

if TYPE_CHECKING:  # gRPC is slow to import, and not every command needs it.
    from hrag.client import Client

_PANEL = "Connection"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credential arguments of `hrag.client.Client`, under the same names."""

    token: str = field(repr=False)
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None


def _credentials(
    token: Annotated[
        str,
        typer.Option(
            envvar="HRAG_TOKEN",
            help="An API key or JSON Web Token. Prefer the variable: other users of this "
            "machine can see command line arguments.",
            rich_help_panel=_PANEL,
            show_default=False,
        ),
    ] = "",
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            envvar="HRAG_CA_FILE",
            metavar="FILE",
            help="Use TLS, and accept only services whose certificate this CA has signed.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert",
            envvar="HRAG_CERT_FILE",
            metavar="FILE",
            help="Your client certificate, if the services require one.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            envvar="HRAG_KEY_FILE",
            metavar="FILE",
            help="The private key of --cert.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> Credentials:
    return Credentials(token, ca, cert, key)


connection_options = option_group("credentials", _credentials, last=True)


@contextmanager
def connect(credentials: Credentials, indexer: str = "", retriever: str = "") -> Iterator["Client"]:
    """Yields a client of the services at these addresses.

    An empty address means that the command does not call that service. A ServiceUnavailable
    raised inside the block names the addresses and the command that starts the services. Raises
    Failure if a service does not know a method that was called.
    """
    from hrag.client import Client  # noqa: PLC0415

    named = {"indexer": indexer, "retriever": retriever}
    used = " or ".join(f"the {name} at {address}" for name, address in named.items() if address)
    try:
        # gRPC requires a valid address even for a service that is never called.
        addresses = dial_address(indexer or retriever), dial_address(retriever or indexer)
        with Client(*addresses, **asdict(credentials)) as client:
            yield client
    except ServiceUnavailable as error:
        raise ServiceUnavailable(
            f"cannot reach {used}; start both services with: hrag serve ({error.message})"
        ) from error
    except InternalError as error:
        if not _is_unknown_method(error):
            raise
        raise Failure(
            f"{used} does not know this call: --indexer and --retriever may be mixed up, "
            f"or another program or version of hrag listens there ({error.message})"
        ) from error


def _is_unknown_method(error: InternalError) -> bool:
    import grpc  # noqa: PLC0415

    failure = error.__cause__
    return isinstance(failure, grpc.RpcError) and failure.code() is grpc.StatusCode.UNIMPLEMENTED
