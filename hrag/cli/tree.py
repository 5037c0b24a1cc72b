"""`hrag tree`: draws a document's chunks, each below its parent.

The chunks are read from the retriever, with one call for each top-level chunk. `hrag export` and
`hrag demo` read them in the same way.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from hrag.cli.options import (
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    Credentials,
    DocumentId,
    Retriever,
    Tenant,
    connect,
    connection_options,
)
from hrag.cli.render import chunk_suffix
from hrag.cli.terminal import output, print_json
from hrag.text.citations import sections, short_pages
from hrag.text.plain_text import printable
from hrag.values.chunks import Chunk, ChunkNode, Hierarchy
from hrag.values.documents import DocumentInfo
from hrag.values.limits import DEFAULT_COLLECTION, MAX_LEVELS

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client

MAX_NODES = 200  # Without --all, at most this many chunks are drawn, on about four screens.

_FIRST_CHARS = 48


@connection_options
def tree(
    credentials: Credentials,
    document_id: DocumentId,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    level: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_LEVELS - 1,
            help="Lowest level to draw; level 0 has the smallest chunks.",
        ),
    ] = 0,
    whole: Annotated[
        bool, typer.Option("--all", help=f"Draw every chunk instead of the first {MAX_NODES}.")
    ] = False,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Draw a document's tree of chunks, with the largest chunks at the root.

    Each line shows one chunk: #level.index, its number of tokens, its range of characters in
    the text, its section and pages, and its first words. Every chunk lies inside its parent.

    \b
    Examples:
      hrag tree guide.md
      hrag tree guide.md --level 2
      hrag tree guide.md --all --json | jq .chunks[].span
    """
    with connect(credentials, retriever=retriever) as client:
        info = client.get_document(tenant, document_id, collection=collection)
        top_level = len(info.chunks_per_level) - 1
        lowest = min(level, top_level)
        budget = sum(info.chunks_per_level[lowest:]) if whole else MAX_NODES
        trees = hierarchies(client, tenant, collection, info)
        if as_json:
            _print_json(info, trees, lowest, budget)
            return
        text = client.get_text(tenant, document_id, collection=collection)
        drawing, drawn_count = draw(info, text, trees, lowest, budget)
    console = output()
    console.print(drawing)
    omitted = sum(info.chunks_per_level[lowest:]) - drawn_count
    if omitted:
        console.print(f"{omitted:,} more chunks; --all draws them", style="dim")


def _print_json(info: DocumentInfo, trees: Iterable[Hierarchy], lowest: int, budget: int) -> None:
    all_nodes = (node for hierarchy in trees for node in nodes(hierarchy))
    shown = islice((node for node in all_nodes if node.chunk.level >= lowest), budget)
    print_json({"document": asdict(info), "chunks": [_without_text(node) for node in shown]})


def _without_text(node: ChunkNode) -> dict[str, Any]:
    """Returns the id, position, size, parent and children of a chunk as a JSON object.

    The object contains neither the chunk's text nor the document's title, source and metadata.
    """
    chunk = asdict(node.chunk)
    for name in ("content", "document_id", "title", "source", "metadata"):
        del chunk[name]
    return {**chunk, "parent_id": node.parent_id or None, "child_ids": node.child_ids}


def draw(
    info: DocumentInfo, text: str, trees: Iterator[Hierarchy], lowest: int, budget: int
) -> tuple[Tree, int]:
    """Returns the drawing of a document's chunk tree, and the number of chunks in the drawing.

    The drawing contains chunks of level `lowest` and of the levels above it, at most `budget`
    chunks. `trees` are the document's hierarchies, in order.
    """
    per_level = ", ".join(f"{count:,}" for count in info.chunks_per_level)
    heading = printable(f"{info.document_id}  {info.title}".replace("\n", " "))
    root = Tree(
        Text(heading, style="bold").append(
            f"\n{info.token_count:,} tokens; chunks per level: {per_level}", style="not bold dim"
        )
    )
    drawn = 0
    for hierarchy in trees:
        drawn += _draw_below(root, hierarchy, text, lowest, budget - drawn)
        if drawn == budget:
            break
    return root, drawn


def _draw_below(root: Tree, hierarchy: Hierarchy, text: str, lowest: int, budget: int) -> int:
    """Adds the chunks of `hierarchy` to the drawing `root`, depth first.

    Adds no chunks below level `lowest`, and at most `budget` chunks. Returns how many chunks it has
    added.
    """
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
    location = " · ".join(filter(None, (sections(chunk), short_pages(chunk))))
    label.append(f" [{span.char_start}:{span.char_end}] ", style="not bold dim")
    label.append(printable(f"{location}  " if location else ""), style="not bold magenta")
    return label.append(printable(text_start[:_FIRST_CHARS]), style="not bold default")


def hierarchies(
    client: "Client", tenant: str, collection: str, info: DocumentInfo
) -> Iterator[Hierarchy]:
    """Yields the hierarchy of each top-level chunk: the chunk with all its descendants.

    The chunks have no contents. A hierarchy is requested from the retriever when the caller asks
    for it. Raises DocumentNotFound if the document was deleted. Raises ChunkNotFound if the
    document was replaced since `info` was read.
    """
    for chunk_id in top_chunk_ids(info):
        yield client.get_hierarchy(tenant, chunk_id, collection=collection, depth=MAX_LEVELS)


def top_chunk_ids(info: DocumentInfo) -> Iterator[str]:
    """Yields the ids of a document's top-level chunks, in the order of the text."""
    top_level = len(info.chunks_per_level) - 1
    for index in range(info.chunks_per_level[top_level]):
        yield f"{info.document_id}#{top_level}.{index}"


def nodes(hierarchy: Hierarchy) -> Iterator[ChunkNode]:
    """Yields the top-level chunk of `hierarchy`, then its descendants, the highest level first."""
    yield hierarchy.node
    yield from hierarchy.descendants
