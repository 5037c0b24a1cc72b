"""Runs both services on an empty store in a temporary folder, for commands that need no setup.

The services are real processes on free loopback ports. At the end, also after an error or Ctrl-C,
they are stopped and the folder is removed.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from hrag.cli.ingest_progress import (
    IngestProgress,
    ingest_with_progress,
    show_outcomes,
    show_skipped,
)
from hrag.cli.input_documents import InputDocument
from hrag.cli.options import warn_of_unused
from hrag.cli.processes import ServiceProcesses, checked_settings, free_addresses
from hrag.cli.terminal import Failure
from hrag.text.noun_counts import counted
from hrag.text.plain_text import printable
from hrag.values.errors import HragError
from hrag.values.limits import DEFAULT_COLLECTION

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client

TENANT = "demo"

# Both services must serve within this time. It is long, because each service loads the embedder,
# perhaps on a slow machine.
_START_S = 90.0
_STOP_S = 20.0
_SUMMARIES_S = 180.0
_POLL_S = 0.1

# These settings override the environment. The store, the audit file and the ports of other services
# must not be touched. A chat model and a reranker would cost money, and a reranker would change
# what is compared. Authentication, TLS and quotas are useless here, because only one command calls
# these services.
_SETTINGS = {
    "HRAG_ENGINE": "embedded",
    "HRAG_AUDIT_FILE": "",
    "HRAG_INDEXER_METRICS_ADDRESS": "",
    "HRAG_RETRIEVER_METRICS_ADDRESS": "",
    "HRAG_CHAT_MODEL": "",
    "HRAG_RERANK_BASE_URL": "",
    "HRAG_AUTH": "none",
    "HRAG_TLS_CERT_FILE": "",
    "HRAG_TLS_KEY_FILE": "",
    "HRAG_TLS_CLIENT_CA_FILE": "",
    "HRAG_TENANT_CALLS_PER_S": "",
    "HRAG_TENANT_MAX_BYTES": "",
    "HRAG_TENANT_MAX_DOCUMENTS": "",
    "HRAG_TENANT_MAX_COLLECTIONS": "",
    "HRAG_TENANT_QUOTAS_FILE": "",
}

# `hrag compare` calls the chat model itself.
_USED = ("compare", "HRAG_CHAT_MODEL")


@contextmanager
def temporary_services(
    name: str, console: Console, settings: Mapping[str, str]
) -> Iterator["Client"]:
    """Starts both services; yields a client; stops them and removes their folder.

    `name` is part of the folder's name. `settings` are environment variables of the services. On an
    error, the last lines of the services' logs are written to standard error. Shows the settings of
    the environment that have no effect. Raises ServiceFailed, and Failure for an invalid setting.
    """
    from hrag.client import Client  # noqa: PLC0415

    _warn_of_ignored_settings(name, {**_SETTINGS, **settings})
    indexer, retriever = free_addresses(2)
    with tempfile.TemporaryDirectory(prefix=f"hrag-{name}-") as folder:
        services = ServiceProcesses(
            Path(folder) / "data",
            indexer,
            retriever,
            logs=Path(folder),
            settings={**_SETTINGS, **settings},
            stop_s=_STOP_S,
        )
        checked_settings(services.environment)
        try:
            with services:
                _wait_until_serving(console, services)
                with Client(indexer=indexer, retriever=retriever) as client:
                    yield client
            services.check_stopped_cleanly()
        except (Failure, HragError):
            _show_logs(services)
            raise


def _warn_of_ignored_settings(name: str, settings: Mapping[str, str]) -> None:
    """Shows which variables of the environment the services of `hrag <name>` do not get."""
    warn_of_unused(
        f"on hrag {name}, which starts services with fixed settings on an empty store",
        {
            variable: os.environ.get(variable, value) not in ("", value)
            for variable, value in {"HRAG_DATA_DIR": "", **settings}.items()
            if (name, variable) != _USED
        },
    )


def _wait_until_serving(console: Console, services: ServiceProcesses) -> None:
    with console.status("starting both services"):
        services.wait_until_serving(_START_S)
    for service, address in services.addresses.items():
        console.print(f"{service.name} serves at {address}")


def _show_logs(services: ServiceProcesses) -> None:
    stderr = Console(stderr=True)
    stderr.print(Text("last log lines of the services:", style="bold"))
    stderr.print(Text(printable(services.log_tail())), soft_wrap=True)


def store_documents(
    client: "Client", collection: str, documents: Sequence[InputDocument], console: Console
) -> IngestProgress:
    """Stores documents with a progress display, and shows those that were not stored.

    Raises the error of the stream if it has failed.
    """
    progress = ingest_with_progress(client, TENANT, collection, documents, console)
    show_outcomes(progress)
    show_skipped(progress.skipped)
    if progress.error is not None:
        raise progress.error
    return progress


def wait_for_summaries(
    client: "Client",
    console: Console,
    timeout_s: float = _SUMMARIES_S,
    poll_s: float = _POLL_S,
    collection: str = DEFAULT_COLLECTION,
) -> None:
    """Waits until the indexer has written all summaries, at most `timeout_s` seconds.

    The indexer writes summaries in the background. This function asks the indexer every `poll_s`
    seconds how many documents still wait for summaries.
    """
    deadline = time.monotonic() + timeout_s
    with console.status("writing summaries") as spinner:
        while (index := client.index_status(TENANT, collection=collection)).unsummarised_documents:
            if time.monotonic() > deadline:
                break
            spinner.update(f"writing summaries; waiting: {index.unsummarised_documents:,}")
            time.sleep(poll_s)
    unfinished = index.unsummarised_documents
    waiting = f"; {counted(unfinished, 'document')} still without summary" if unfinished else ""
    console.print(f"{index.summary_count:,} summaries, made of the documents' sentences{waiting}")
