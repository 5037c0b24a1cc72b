"""Options that several commands share, each defined once, and functions that use their values.

The function of a command receives a group of options as one value. `connect` creates a client from
the options of the connection. The errors of this client name the addresses of the services.
"""

import errno
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hrag.cli.option_values import FILTER_HELP, FILTER_OPTION, WHERE_HELP, WHERE_OPTION
from hrag.cli.startup import wait_for_start
from hrag.cli.terminal import ExitCode, Failure, show_note
from hrag.host.addresses import dial_address
from hrag.values.collections import Collection, Listing
from hrag.values.documents import DocumentInfo
from hrag.values.errors import HragError
from hrag.values.filters import Filter
from hrag.values.limits import DEFAULT_CONTEXT_TOKENS
from hrag.values.search import SearchMode

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client

Command = Callable[..., None]

DEFAULT_TENANT = "default"
DEFAULT_INDEXER = "127.0.0.1:50051"
DEFAULT_RETRIEVER = "127.0.0.1:50052"
DEFAULT_DATA_DIR = Path("./data")
PAGE_SIZE = 1000

_MAX_U32 = (1 << 32) - 1
_COMPLETION_TIMEOUT_S = 0.5
_CONNECTION_PANEL = "Connection"


def _collection_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of the tenant's collections that begin with `incomplete`.

    A shell completes the option `--collection` with these names. Returns an empty list if the
    collections cannot be listed.
    """
    from hrag.client import Client  # noqa: PLC0415

    params = ctx.params
    address = params.get("indexer") or DEFAULT_INDEXER
    files: dict[str, Any] = {f"{name}_file": params.get(name) for name in ("ca", "cert", "key")}
    try:
        with Client(
            address, address, _COMPLETION_TIMEOUT_S, token=params.get("token") or "", **files
        ) as client:
            page = client.list_collections(params.get("tenant") or DEFAULT_TENANT)
    except HragError:
        return []
    return [collection.name for collection in page.items if collection.name.startswith(incomplete)]


Tenant = Annotated[
    str,
    typer.Option(
        "--tenant", help="The tenant that owns the data. Tenants never see each other's data."
    ),
]
CollectionName = Annotated[
    str,
    typer.Option(
        "--collection",
        help="The collection within the tenant.",
        autocompletion=_collection_names,
    ),
]
DocumentId = Annotated[
    str,
    typer.Argument(
        metavar="DOCUMENT_ID",
        help="The document's id, as shown by hrag documents.",
        show_default=False,
    ),
]
Indexer = Annotated[
    str,
    typer.Option(
        "--indexer",
        envvar="HRAG_INDEXER_ADDRESS",
        metavar="ADDRESS",
        help="Address of the indexer, the service that stores documents.",
    ),
]
Retriever = Annotated[
    str,
    typer.Option(
        "--retriever",
        envvar="HRAG_RETRIEVER_ADDRESS",
        metavar="ADDRESS",
        help="Address of the retriever, the service that searches.",
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        envvar="HRAG_DATA_DIR",
        file_okay=False,
        help="Folder of the store. It must be on a local disk, not on a network file system.",
    ),
]
_MODE_OPTION = typer.Option(
    help="What to return. small_to_big: the larger chunks around the leaves that matched; "
    "standard: the leaves themselves; auto_merge: a larger chunk only where enough of its "
    "children matched; sentence_window: the best sentence of each leaf with its "
    "neighbours; summary_first: larger chunks from the best sections; "
    "context: the leaves that answer best, joined where they touch, up to --token-budget."
)
Mode = Annotated[SearchMode, _MODE_OPTION]
OptionalMode = Annotated[SearchMode | None, _MODE_OPTION]
TokenBudget = Annotated[
    int,
    typer.Option(
        min=0,
        max=_MAX_U32,
        help="Maximum number of tokens of all passages together. 0 means no limit, except that "
        f"mode context then uses {DEFAULT_CONTEXT_TOKENS:,}.",
    ),
]
MinScore = Annotated[float | None, typer.Option(help="Leave out passages with a lower score.")]
Conditions = Annotated[
    list[str] | None,
    typer.Option(FILTER_OPTION, metavar="CONDITION", help=FILTER_HELP, show_default=False),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        WHERE_OPTION,
        metavar="CONDITION",
        help=WHERE_HELP,
        show_default=False,
    ),
]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print a line of JSON for each document, then a summary.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, yes: bool) -> None:
    """Asks the user `question`, and returns if the user agrees. If `yes`, returns without asking.

    Raises typer.Abort if the user does not agree, and Failure if standard input is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(
            f"there is no terminal to ask at: {question} To agree, add --yes",
            ExitCode.USAGE,
        )
    typer.confirm(question, abort=True, err=True)


def warn_of_unused(why: str, options: Mapping[str, bool]) -> None:
    """Shows the options that are set and have no effect; `why` is for example `without --http`.

    The keys of `options` are the names of options or variables; a value is True if it is set.
    """
    names = [name for name, is_set in options.items() if is_set]
    if names:
        has = "has" if len(names) == 1 else "have"
        show_note(f"warning: {', '.join(names)} {has} no effect {why}")


def check_target(path: Path) -> None:
    """Raises Failure if no file can be written at `path`. It is called before any work is done."""
    try:
        problem = _problem_of_target(path)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise Failure(f"{path}: {problem}", ExitCode.USAGE)


def _problem_of_target(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if path.is_dir():
        return "it is a folder; it must be a file"
    # A file is replaced by a new one. A pipe or a device is written to.
    is_replaced = path.is_file() or not path.exists()
    writable = os.access(path.parent if is_replaced else path, os.W_OK)
    return "" if writable else os.strerror(errno.EACCES)


def option_group(
    parameter: str, make: Callable[..., Any], *, last: bool
) -> Callable[[Command], Command]:
    """Returns a decorator for a command's function, which adds a group of options to the command.

    The options are the parameters of the function `make`. When the command is called, the decorated
    function calls `make` with the values of these options, and passes the result to the command's
    function as the argument with the name `parameter`. If `last`, the help lists the group after
    the command's other options, otherwise before them.
    """

    def decorate(command: Command) -> Command:
        parameters = inspect.signature(command).parameters.values()
        other_options = [option for option in parameters if option.name != parameter]
        group = list(inspect.signature(make).parameters.values())

        @wraps(command)
        def run(**values: Any) -> None:
            arguments = {option.name: values.pop(option.name) for option in group}
            command(**{parameter: make(**arguments)}, **values)

        options = [*other_options, *group] if last else [*group, *other_options]
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        return run

    return decorate


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credential and the certificate files of a client.

    The fields have the names of those arguments of `hrag.client.Client` that receive them.
    """

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
            rich_help_panel=_CONNECTION_PANEL,
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
            rich_help_panel=_CONNECTION_PANEL,
        ),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert",
            envvar="HRAG_CERT_FILE",
            metavar="FILE",
            help="Your client certificate, if the services require one.",
            rich_help_panel=_CONNECTION_PANEL,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            envvar="HRAG_KEY_FILE",
            metavar="FILE",
            help="The private key of --cert.",
            rich_help_panel=_CONNECTION_PANEL,
        ),
    ] = None,
) -> Credentials:
    return Credentials(token, ca, cert, key)


connection_options = option_group("credentials", _credentials, last=True)


@contextmanager
def connect(credentials: Credentials, indexer: str = "", retriever: str = "") -> Iterator["Client"]:
    """Yields a client of the services at the addresses `indexer` and `retriever`.

    An empty address means that the command does not call that service. Waits for a service of this
    machine that is just starting, after it has checked the credentials. Raises InvalidArgument for
    credentials or addresses that cannot be used.
    """
    from hrag.client import Client  # noqa: PLC0415

    # gRPC requires a valid address even for a service that is never called.
    addresses = dial_address(indexer or retriever), dial_address(retriever or indexer)
    named = {"indexer": indexer, "retriever": retriever}
    with Client(*addresses, **asdict(credentials)) as client:
        wait_for_start({name: dial_address(address) for name, address in named.items() if address})
        yield client


def document_pages(
    client: "Client",
    tenant: str,
    collection: str,
    filter: Filter | None = None,
    token: str = "",
    limit: int | None = None,
) -> Iterator[Listing[DocumentInfo]]:
    """Yields pages of the documents that pass `filter`, in order of id.

    The pages have at most `limit` documents in total; None means no limit. If `token` is the token
    at the end of an earlier listing, that listing is continued; an empty text begins a new listing.
    Raises CollectionNotFound if the collection does not exist, and InvalidArgument if no listing
    has returned `token`.
    """
    remaining = limit
    while remaining is None or remaining > 0:
        size = PAGE_SIZE if remaining is None else min(remaining, PAGE_SIZE)
        page = client.list_documents(
            tenant, collection=collection, filter=filter, page_size=size, page_token=token
        )
        yield page
        token = page.next_page_token
        if not token:
            return
        if remaining is not None:
            remaining -= len(page.items)


def all_documents(
    client: "Client", tenant: str, collection: str, filter: Filter | None = None
) -> Iterator[DocumentInfo]:
    """Yields the documents that pass `filter`, in order of id.

    Raises CollectionNotFound if the collection does not exist.
    """
    for page in document_pages(client, tenant, collection, filter):
        yield from page.items


def all_collections(client: "Client", tenant: str) -> Iterator[Collection]:
    """Yields every collection of a tenant, in order of name."""
    token = ""
    while True:
        page = client.list_collections(tenant, page_token=token)
        yield from page.items
        token = page.next_page_token
        if not token:
            return
