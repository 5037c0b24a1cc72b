"""`hrag tree`: a document's chunks, each drawn below its parent."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from hrag.answers.citations import sections
from hrag.cli.connection import Credentials, connect, connection_options
from hrag.cli.console import output
from hrag.cli.options import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    CollectionName,
    Indexer,
    Retriever,
    Tenant,
)
from hrag.cli.render import chunk_suffix, pages
from hrag.plain_text import printable
from hrag.types import DEFAULT_COLLECTION, MAX_LEVELS, Chunk, DocumentInfo, Hierarchy

if TYPE_CHECKING:
    from hrag.client import Client

MAX_NODES = 200  # About four screens.
_FIRST_CHARS = 48


@connection_options
def tree(
    credentials: Credentials,
    document_id: Annotated[
        str,
        typer.Argument(help="The document's id, as shown by hrag search: the part before the #."),
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    level: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_LEVELS - 1, help="Lowest level to draw; 0 is the smallest chunks."
        ),
    ] = 0,
    whole: Annotated[
        bool, typer.Option("--all", help=f"Draw every chunk instead of the first {MAX_NODES}.")
    ] = False,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Draw a document's tree of chunks, with the largest chunks at the root.

    Each line shows one chunk: #level.index, its number of tokens, its range of characters in
    the text, its section and pages, and its first words. Every chunk lies inside its parent.

    \b
    Examples:
      hrag tree guide.md
      hrag tree guide.md --level 2
    """
    with connect(credentials, indexer, retriever) as client:
        info = client.get_document(tenant, document_id, collection=collection)
        text = client.get_text(tenant, document_id, collection=collection)
        top_level = len(info.chunks_per_level) - 1
        lowest = min(level, top_level)
        budget = sum(info.chunks_per_level[lowest:]) if whole else MAX_NODES
        hierarchies = _hierarchies(client, tenant, collection, info)
        drawn, count = draw(info, text, hierarchies, lowest, budget)
    console = output()
    console.print(drawn)
    left_out = sum(info.chunks_per_level[lowest:]) - count
    if left_out:
        console.print(f"{left_out:,} more chunks; --all draws them", style="dim")


def _hierarchies(
    client: "Client", tenant: str, collection: str, info: DocumentInfo
) -> Iterator[Hierarchy]:
    """The hierarchy of each chunk at the top level, requested one at a time."""
    top_level = len(info.chunks_per_level) - 1
    for index in range(info.chunks_per_level[-1]):
        chunk_id = f"{info.document_id}#{top_level}.{index}"
        yield client.get_hierarchy(tenant, chunk_id, collection=collection, depth=MAX_LEVELS)


def draw(
    info: DocumentInfo, text: str, hierarchies: Iterator[Hierarchy], lowest: int, budget: int
) -> tuple[Tree, int]:
    """Returns a tree of the first `budget` chunks at or above level `lowest`, and their number."""
    per_level = ", ".join(f"{count:,}" for count in info.chunks_per_level)
    heading = printable(f"{info.document_id}  {info.title}".replace("\n", " "))
    root = Tree(
        Text(heading, style="bold").append(
            f"\n{info.token_count:,} tokens; chunks per level: {per_level}", style="not bold dim"
        )
    )
    drawn = 0
    for hierarchy in hierarchies:
        drawn += _draw_below(root, hierarchy, text, lowest, budget - drawn)
        if drawn == budget:
            break
    return root, drawn


def _draw_below(root: Tree, hierarchy: Hierarchy, text: str, lowest: int, budget: int) -> int:
    """Draws a top-level chunk and its descendants, depth first; returns how many were drawn."""
    children: defaultdict[str, list[Chunk]] = defaultdict(list)
    for node in hierarchy.descendants:
        if node.chunk.level >= lowest:
            children[node.parent_id].append(node.chunk)
    stack = [(root, hierarchy.node.chunk)]
    drawn = 0
    while stack and drawn < budget:
        parent, chunk = stack.pop()
        branch = parent.add(_label(chunk, text))
        drawn += 1
        stack += [(branch, child) for child in reversed(children[chunk.chunk_id])]
    return drawn


def _label(chunk: Chunk, text: str) -> Text:
    span = chunk.span
    text_start = " ".join(text[span.char_start : span.char_start + 4 * _FIRST_CHARS].split())
    label = Text(chunk_suffix(chunk.chunk_id), style="bold cyan", no_wrap=True, overflow="ellipsis")
    label.append(f" {chunk.token_count:,} tokens", style="not bold default")
    location = " · ".join(filter(None, (sections(chunk), pages(chunk))))
    label.append(f" [{span.char_start}:{span.char_end}] ", style="not bold dim")
    label.append(printable(f"{location}  " if location else ""), style="not bold magenta")
    return label.append(printable(text_start[:_FIRST_CHARS]), style="not bold default")
