"""The `hrag` application: it registers all commands and reports their errors.

An expected error is written to standard error as one red line, or with --json as one line of
JSON. The command then ends with one of the codes of `ExitCode`.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from hrag.cli.chat import chat
from hrag.cli.collections import (
    create_collection,
    delete_alias,
    delete_collection,
    list_aliases,
    list_collections,
    reembed,
    set_alias,
)
from hrag.cli.comparison import compare
from hrag.cli.demo import demo
from hrag.cli.documents import count, delete, documents, get, remove_metadata, set_metadata
from hrag.cli.evaluation import evaluate
from hrag.cli.export import export, import_documents
from hrag.cli.extras import needs_server
from hrag.cli.help_values import HragCommand, HragGroup
from hrag.cli.ingest import ingest
from hrag.cli.keys import create_key, list_keys, revoke_key
from hrag.cli.mcp import mcp
from hrag.cli.migrate import migrate
from hrag.cli.options import DEFAULT_TENANT
from hrag.cli.original import original
from hrag.cli.page import page
from hrag.cli.read import read
from hrag.cli.search import answer, search
from hrag.cli.serve import gateway, serve
from hrag.cli.status import health, status
from hrag.cli.store import CANNOT_CHECK, backup, check, migrate_schema, reindex, restore, vacuum
from hrag.cli.tenants import tenants
from hrag.cli.terminal import (
    ExitCode,
    Failure,
    exit_code_of,
    finishes_without_reader,
    show_error,
    show_json_error,
)
from hrag.cli.tree import tree
from hrag.values.errors import CollectionNotFound, HragError

_AS_JSON = "hrag.as_json"
# The base class of all errors about wrong arguments: click's UsageError. Typer contains a private
# copy of click, and gives this class no public name.
_UsageError: Any = typer.BadParameter.__base__


class _ErrorReportingGroup(HragGroup):
    """The group of all commands. It reports an expected error of a command in one line.

    An exception that is not expected is a bug, so Python shows its traceback.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_AS_JSON] = "--json" in args
        # `--help` and `--version` write their output while the arguments are parsed, so errors of
        # standard output may occur here.
        with _errors_reported(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _errors_reported(ctx):
            return super().invoke(ctx)


@contextmanager
def _errors_reported(ctx: Any) -> Iterator[None]:
    try:
        with _raise_if_output_is_lost(ctx):
            yield
    except (Failure, HragError, _UsageError) as error:
        if ctx.meta[_AS_JSON]:
            show_json_error(_error_as_json(error))
        elif isinstance(error, _UsageError):
            raise
        else:
            show_error(f"{error}{_tenant_hint(error)}")
        raise typer.Exit(_exit_code(error)) from None


@contextmanager
def _raise_if_output_is_lost(ctx: Any) -> Iterator[None]:
    """Raises Failure if standard output cannot be written, for example on a full disk."""
    try:
        yield
    except BrokenPipeError:
        # The program that reads the output has closed the pipe. That is not an error.
        raise
    except OSError as error:
        if not _output_is_lost():
            raise
        code = CANNOT_CHECK if ctx.invoked_subcommand == check.__name__ else ExitCode.FAILED
        raise Failure(f"standard output: {error.strerror or error}", code) from None


def _output_is_lost() -> bool:
    """Returns True if standard output cannot be written any more, not even an empty line.

    If it returns True, it has also redirected standard output to the null device. Without this,
    Python would try to write the same output when it exits, and report a second error.
    """
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        with Path(os.devnull).open("wb") as null_device:
            os.dup2(null_device.fileno(), sys.stdout.fileno())
        return True
    return False


def _tenant_hint(error: Exception) -> str:
    """Returns a hint for a person who perhaps forgot the option --tenant, or an empty text."""
    of_default_tenant = str(error).startswith(f"tenant '{DEFAULT_TENANT}' ")
    is_hint = isinstance(error, CollectionNotFound) and of_default_tenant
    return "; --tenant names another tenant" if is_hint else ""


def _exit_code(error: Any) -> int:
    return exit_code_of(error) if isinstance(error, HragError) else error.exit_code


def _error_as_json(error: Any) -> dict[str, Any]:
    """Returns the error as a JSON object.

    The field `type` is the name of the error's class, or `UsageError` for wrong arguments.
    """
    fields: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, _UsageError):
        fields = {"type": "UsageError", "message": error.format_message()}
    elif isinstance(error, HragError):
        fields |= {"field": error.field, "retry_s": error.retry_s}
    return {**fields, "exit_code": _exit_code(error)}


app = typer.Typer(
    cls=_ErrorReportingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _help(function: Callable[..., None]) -> str:
    """Returns the function's docstring as help text.

    The lines of a paragraph are joined, so that the terminal can wrap them. A paragraph that begins
    with the character \\b, such as the examples, keeps its lines.
    """
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(
        text.replace("\b\n", "\b") if text.startswith("\b") else text.replace("\n", " ")
        for text in paragraphs
    )


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"hrag {version('hrag')}")
        raise typer.Exit


def _hrag(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Store documents, search them, and get back passages with their sources.

    hrag cuts a document into a tree of [bold]chunks[/bold]: small chunks of 256 tokens inside
    larger ones of 512, 1,024 and 2,048 tokens. It embeds and searches the smallest chunks, the
    [bold]leaves[/bold], because the embedding of a short text is precise. It returns
    [bold]passages[/bold], the larger chunks around the leaves that matched, because a
    language model needs context.

    \b
    Get started:
      hrag demo                       try everything in half a minute, without any setup
      hrag serve                      start the services
      hrag ingest docs/               store a folder of documents
      hrag search "how do I ...?"     search them
      hrag documents                  list the stored documents
      hrag answer "how do I ...?"     let a chat model answer, with sources
      hrag chat                       ask several questions that refer to each other
      hrag eval questions.csv         measure how well searches find the answers
      hrag compare docs/ --questions questions.csv   the same without a server

    \b
    Maintain a store:
      hrag backup DIR                 copy the store, also while it is in use
      hrag check                      verify every document and index file
    """


app.callback(help=_help(_hrag))(_hrag)
_COMMANDS = (
    *(serve, gateway, ingest, read, search, answer, chat),
    *(documents, count, get, original, page, tree, delete, export),
    *(status, health, tenants, mcp, reembed),
    *(check, backup, restore, vacuum, reindex, migrate, demo, compare),
)
_COMMANDS_BY_NAME = {
    **{_command.__name__: _command for _command in _COMMANDS},
    "import": import_documents,
    "eval": evaluate,
}
_SERVER_COMMANDS = (
    *(serve, read, check, backup, restore, vacuum, reindex, migrate, demo, compare),
    *(evaluate, create_key, list_keys, revoke_key, migrate_schema),
)
# These commands change or write something in several steps.
_FINISHING_COMMANDS = (
    *(ingest, import_documents, delete, reembed, set_metadata, remove_metadata),
    *(backup, restore, vacuum, reindex, migrate, migrate_schema, compare, evaluate),
)


def _prepared(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Returns the function that runs as the command `name`."""
    prepared = finishes_without_reader(command) if command in _FINISHING_COMMANDS else command
    return needs_server(f"hrag {name}", prepared) if command in _SERVER_COMMANDS else prepared


for _name, _command in _COMMANDS_BY_NAME.items():
    app.command(_name, cls=HragCommand, help=_help(_command))(_prepared(_name, _command))
_GROUPS: tuple[tuple[str, str, dict[str, Callable[..., None]]], ...] = (
    (
        "collections",
        "List, create and delete collections.",
        {"list": list_collections, "create": create_collection, "delete": delete_collection},
    ),
    (
        "aliases",
        "List, set and delete other names of collections.",
        {"list": list_aliases, "set": set_alias, "delete": delete_alias},
    ),
    (
        "metadata",
        "Change the metadata of documents.",
        {"set": set_metadata, "remove": remove_metadata},
    ),
    (
        "keys",
        "Create, list and revoke API keys for the services.",
        {"create": create_key, "list": list_keys, "revoke": revoke_key},
    ),
    (
        "postgres",
        "Maintain a store in PostgreSQL.",
        {"migrate": migrate_schema},
    ),
)
for _group_name, _about, _commands in _GROUPS:
    _group = typer.Typer(cls=HragGroup, no_args_is_help=True, rich_markup_mode="rich")
    for _name, _command in _commands.items():
        _prepared_command = _prepared(f"{_group_name} {_name}", _command)
        _group.command(_name, cls=HragCommand, help=_help(_command))(_prepared_command)
    app.add_typer(_group, name=_group_name, help=_about)
