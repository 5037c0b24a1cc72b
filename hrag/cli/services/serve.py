"""`hrag serve`: runs both services, and optionally a gateway, on this machine until Ctrl-C."""

from typing import Annotated

import typer

from hrag.cli.extras import module_of_extra
from hrag.cli.options.shared import DEFAULT_DATA_DIR, DEFAULT_INDEXER, DEFAULT_RETRIEVER, DataDir
from hrag.cli.terminal.console import output
from hrag.cli.terminal.signals import interrupt_on_signals


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
) -> None:
    """Start both services and keep them running until Ctrl-C.

    The indexer stores documents, and the retriever answers searches. Both use the store under
    --data-dir, or with HRAG_ENGINE=postgres a database. Other settings come from environment
    variables such as HRAG_EMBEDDER and HIERARCHICAL_CHUNK_LEVELS (see .env.example). Serving
    other machines needs credentials and TLS (HRAG_AUTH, HRAG_TLS_CERT_FILE). Port 0 means any
    free port.

    If a service or the gateway of --http ends, the others are stopped too and the exit code
    is 1. All of them also stop if this program is killed.

    With --workers, several processes answer searches. They share the retriever's port and its
    memory budget; a process that dies is replaced.

    \b
    Examples:
      hrag serve
      hrag serve --data-dir /var/lib/hrag --retriever-address 127.0.0.1:6000
      hrag serve --workers 4
      hrag serve --http 127.0.0.1:8080
    """
    from hrag.cli.services import processes  # noqa: PLC0415

    if http:
        module_of_extra("hrag.gateway.app", "gateway", "hrag serve --http")
    interrupt_on_signals()
    services = processes.Services(
        data_dir,
        processes.with_free_port(indexer_address),
        processes.with_free_port(retriever_address),
        http=processes.with_free_port(http),
        settings={"HRAG_WORKERS": str(workers)},
    )
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
