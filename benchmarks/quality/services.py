"""Both services on an empty store, in processes of their own, with the default settings."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import environ
from pathlib import Path

from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.cli.terminal import Failure
from hrag.client import Client
from hrag.errors import HragError

# The prefixes of the environment variables that the services read.
_PREFIXES = ("HRAG_", "HIERARCHICAL_", "SMALL_TO_BIG_", "OPENAI_", "OTEL_")
_START_S = 120.0
_STOP_S = 30.0


def default_settings(embedder: str) -> dict[str, str]:
    """Returns variables with which the services have the default settings and this embedder.

    Variables of this process's environment are set to an empty text, which means "not set".
    """
    unset = {name: "" for name in environ if name.startswith(_PREFIXES)}
    return unset | {"HRAG_EMBEDDER": embedder}


@contextmanager
def serving(settings: Mapping[str, str]) -> Iterator[Client]:
    """Runs both services on an empty store and yields a client.

    The services inherit this process's environment, except for `settings`. If a call fails, the end
    of the services' log is printed.
    """
    with tempfile.TemporaryDirectory(prefix="hrag-quality-") as folder:
        path = Path(folder)
        indexer, retriever = free_addresses(2)
        services = ServiceProcesses(
            path / "data", indexer, retriever, logs=path, settings=settings, stop_s=_STOP_S
        )
        try:
            with services:
                services.wait_until_serving(_START_S)
                with Client(indexer, retriever) as client:
                    yield client
        except (Failure, HragError):
            print(services.log_tail(), file=sys.stderr)
            raise
