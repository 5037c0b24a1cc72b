"""All commands of `hrag` under one roof.

A domain error becomes one red line and exit code 1, here and nowhere else.
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


class _Explaining(TyperGroup):
    """Shows what went wrong in one line; a traceback would only mean a bug."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (Failure, HragError) as error:
            show_error(str(error))
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Explaining,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _help(function: Callable[..., None]) -> str:
    """The docstring as help: paragraphs flow to the terminal's width, examples stay."""
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
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Search small chunks, get back the larger passages around them.

    A document is cut into a tree of [bold]chunks[/bold]: small ones of 256 tokens inside
    larger ones of 512, 1,024 and 2,048. The smallest, the [bold]leaves[/bold], are embedded
    and searched, because a small chunk's meaning is precise. What comes back are
    [bold]passages[/bold]: larger chunks around the leaves that matched, because a language
    model needs context.

    \b
    Begin with:
      hrag demo                       see it work, from nothing, in half a minute
      hrag serve                      start the services
      hrag ingest docs/               store a folder of documents
      hrag search "how do I ...?"     ask
      hrag answer "how do I ...?"     have a model answer, with sources

    \b
    Keep a store safe:
      hrag backup DIR                 copy it, in use or not
      hrag check                      prove it sound
    """


app.callback(help=_help(_hrag))(_hrag)
_COMMANDS = (
    *(serve, ingest, search, answer, tree, status, health, mcp),
    *(check, backup, restore, vacuum, reindex, demo),
)
for _command in _COMMANDS:
    app.command(help=_help(_command))(_command)
for _name, _command in (("create", create), ("list", show), ("revoke", revoke)):
    keys.command(_name, help=_help(_command))(_command)
app.add_typer(keys, name="keys", help="Make, list and revoke the API keys of the services.")
