"""`hrag gateway`: serves both services over HTTP until Ctrl-C."""

import os
from typing import Annotated

import typer

from hrag.cli.extras import module_of_extra
from hrag.cli.options.shared import DEFAULT_INDEXER, DEFAULT_RETRIEVER, Indexer, Retriever


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

    Requires the packages of an extra: pip install 'hrag\\[gateway]'.

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
