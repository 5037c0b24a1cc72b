"""How a command reaches the services: its options, and a client whose failures explain."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hrag.cli.option_groups import gathering
from hrag.errors import ServiceUnavailable
from hrag.net.addresses import dial_address

if TYPE_CHECKING:  # gRPC takes a moment to import; commands that need none never do.
    from hrag.client import Client

_PANEL = "Connection"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What `hrag.client.Client` takes beside the addresses, by the same names."""

    token: str = field(repr=False)
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None


def _credentials(
    token: Annotated[
        str,
        typer.Option(
            envvar="HRAG_TOKEN",
            help="An API key or JSON Web Token. Better in the variable: others see arguments.",
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
            help="Speak TLS, with services whose certificates this one has signed.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert",
            envvar="HRAG_CERT_FILE",
            metavar="FILE",
            help="A certificate of your own, where the services ask for one.",
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


connecting = gathering("credentials", _credentials, last=True)


@contextmanager
def connected(
    credentials: Credentials, indexer: str = "", retriever: str = ""
) -> Iterator["Client"]:
    """A client of the services named; an address left empty is not used.

    Raises ServiceUnavailable with the addresses and the command that starts the services.
    """
    from hrag.client import Client  # noqa: PLC0415

    try:
        # An address that is not used is never dial_address; gRPC still wants a valid one.
        places = dial_address(indexer or retriever), dial_address(retriever or indexer)
        with Client(*places, **asdict(credentials)) as client:
            yield client
    except ServiceUnavailable as error:
        named = {"indexer": indexer, "retriever": retriever}
        asked = " or ".join(f"the {name} at {where}" for name, where in named.items() if where)
        raise ServiceUnavailable(
            f"cannot reach {asked}; start both services with: hrag serve ({error.message})"
        ) from error
