"""The `hrag` application: all commands, and how their errors are reported.

An expected error becomes one red line on standard error and exit code 1.
"""

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hrag.cli.answer import answer
from hrag.cli.backup import backup, restore
from hrag.cli.check import check
from hrag.cli.console import Failure, show_error
from hrag.cli.demo import demo
from hrag.cli.evaluation import evaluate
from hrag.cli.health import health
from hrag.cli.ingest import ingest
from hrag.cli.keys import create, keys, revoke, show
from hrag.cli.mcp import mcp
from hrag.cli.reindex import reindex
from hrag.cli.search import search
from hrag.cli.serve import serve
from hrag.cli.status import status
from hrag.cli.tree import tree
from hrag.cli.vacuum import vacuum
from hrag.errors import HragError


class _ErrorReportingGroup(TyperGroup):
    """Reports expected errors in one line; any other exception is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (Failure, HragError) as error:
            show_error(str(error))
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_ErrorReportingGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _help(function: Callable[..., None]) -> str:
    """The docstring as help: paragraphs are wrapped by the terminal, examples keep their lines."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(
        each.replace("\b\n", "\b") if each.startswith("\b") else each.replace("\n", " ")
        for each in paragraphs
    )


def _show_version(wanted: bool) -> None:
    if wanted:
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
      hrag answer "how do I ...?"     let a chat model answer, with sources
      hrag eval questions.csv         measure how well searches find the answers

    \b
    Look after a store:
      hrag backup DIR                 copy it, while it is in use or not
      hrag check                      verify every document and index file
    """


app.callback(help=_help(_hrag))(_hrag)
_COMMANDS = (
    *(serve, ingest, search, answer, tree, status, health, mcp),
    *(check, backup, restore, vacuum, reindex, demo),
)
for _command in _COMMANDS:
    app.command(help=_help(_command))(_command)
app.command("eval", help=_help(evaluate))(evaluate)
for _name, _command in (("create", create), ("list", show), ("revoke", revoke)):
    keys.command(_name, help=_help(_command))(_command)
app.add_typer(keys, name="keys", help="Create, list and revoke API keys for the services.")
