"""`hrag serve` runs the services until Ctrl-C; `hrag gateway` runs their HTTP gateway."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hrag.cli.extras import module_of_extra
from hrag.cli.options import (
    DEFAULT_DATA_DIR,
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DataDir,
    Indexer,
    Retriever,
)
from hrag.cli.processes import ServiceProcesses, checked_settings, with_free_port
from hrag.cli.terminal import interrupt_on_signals, output, show_note

if TYPE_CHECKING:
    from hrag.config import CommonSettings


def serve(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    indexer_address: Annotated[
        str,
        typer.Option(envvar="HRAG_INDEXER_ADDRESS", help="Address at which the indexer listens."),
    ] = DEFAULT_INDEXER,
    retriever_address: Annotated[
        str,
        typer.Option(
            envvar="HRAG_RETRIEVER_ADDRESS", help="Address at which the retriever listens."
        ),
    ] = DEFAULT_RETRIEVER,
    workers: Annotated[
        int,
        typer.Option(
            envvar="HRAG_WORKERS",
            min=1,
            max=256,
            help="Number of processes that answer searches.",
        ),
    ] = 1,
    http: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Also serve HTTP at this address, as hrag gateway does."
        ),
    ] = "",
    keep_originals: Annotated[
        bool,
        typer.Option(
            "--keep-originals/--no-keep-originals",
            envvar="HRAG_KEEP_ORIGINALS",
            help="New collections keep the files from which their documents are read.",
        ),
    ] = False,
) -> None:
    """Start both services and keep them running until Ctrl-C.

    The indexer stores documents, and the retriever answers searches. Both use the store under
    --data-dir, or with HRAG_ENGINE=postgres a database. Other settings come from environment
    variables such as HRAG_EMBEDDER and HIERARCHICAL_CHUNK_LEVELS (see .env.example). Serving
    other machines needs credentials and TLS (HRAG_AUTH, HRAG_TLS_CERT_FILE). Port 0 means any
    free port.

    If a service or the gateway of --http ends, the others are stopped too and the exit code
    is 1, or 2 if a setting is invalid. All of them also stop if this program is killed.

    With --workers, several processes answer searches. They share the retriever's port and its
    memory budget; a process that dies is replaced.

    \b
    Examples:
      hrag serve
      hrag serve --data-dir /var/lib/hrag --retriever-address 127.0.0.1:6000
      hrag serve --workers 4
      hrag serve --http 127.0.0.1:8080
      hrag serve --keep-originals
    """
    if http:
        module_of_extra("hrag.gateway.app", "gateway", "hrag serve --http")
    interrupt_on_signals()
    _warn_of_unknown_variables()
    indexer, retriever = with_free_port(indexer_address), with_free_port(retriever_address)
    os.environ |= {
        "HRAG_DATA_DIR": str(data_dir),
        "HRAG_INDEXER_ADDRESS": indexer,
        "HRAG_RETRIEVER_ADDRESS": retriever,
        "HRAG_WORKERS": str(workers),
        "HRAG_KEEP_ORIGINALS": str(keep_originals).lower(),
    }
    if http := with_free_port(http):
        os.environ["HRAG_HTTP_ADDRESS"] = http
    _warn_of_ignored_settings(checked_settings(os.environ, with_gateway=bool(http)))
    # The variable is removed if the store is in a database.
    data_dir = Path(os.environ.get("HRAG_DATA_DIR", DEFAULT_DATA_DIR))
    services = ServiceProcesses(data_dir, indexer, retriever, http=http)
    console = output()
    try:
        with services:
            services.wait_until_serving()
            for service, address in services.addresses.items():
                console.print(f"{service.name} serves at {address}", style="green", markup=False)
            console.print("Ctrl-C stops them.")
            services.watch()
    except KeyboardInterrupt:
        console.print("stopped")
    services.check_stopped_cleanly()


def _warn_of_unknown_variables() -> None:
    from hrag.config import pop_unknown_variables  # noqa: PLC0415

    for variable, nearest in pop_unknown_variables().items():
        hint = f"; the nearest name is {nearest}" if nearest else ""
        show_note(f"warning: {variable} is no setting of hrag and has no effect{hint}")


def _warn_of_ignored_settings(settings: "Sequence[CommonSettings]") -> None:
    from hrag.required_settings import pop_ineffective  # noqa: PLC0415

    for ineffective in pop_ineffective(*settings, is_whole=True):
        show_note(f"warning: {ineffective}")


def gateway(
    address: Annotated[
        str,
        typer.Option(
            envvar="HRAG_HTTP_ADDRESS",
            metavar="ADDRESS",
            help="Address to listen at: host:port, or a port of 127.0.0.1.",
        ),
    ] = "127.0.0.1:8080",
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Serve both services over HTTP, as JSON, until Ctrl-C.

    A browser finds the documents and the search at /, and a description of every method at
    /docs; programs find the description at /openapi.json. Callers send a key or token with each
    request. Other settings come from environment variables such as HRAG_HTTP_HOSTS and
    HRAG_TLS_CERT_FILE (see .env.example); HRAG_CA_FILE turns on TLS towards the services.

    Requires the extra gateway.

    \b
    Examples:
      hrag gateway
      hrag gateway --address 127.0.0.1:9000 --retriever 127.0.0.1:6000
    """
    app = module_of_extra("hrag.gateway.app", "gateway", "hrag gateway")
    from hrag.config import GatewaySettings  # noqa: PLC0415
    from hrag.server.serving.service_process import run  # noqa: PLC0415

    os.environ["HRAG_HTTP_ADDRESS"] = address
    os.environ["HRAG_INDEXER_ADDRESS"] = indexer
    os.environ["HRAG_RETRIEVER_ADDRESS"] = retriever
    run("gateway", GatewaySettings, app.serve)
