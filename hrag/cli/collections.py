"""`hrag collections`, `hrag aliases` and `hrag reembed`.

They manage the collections and the aliases of a tenant.
"""

from dataclasses import asdict
from typing import Annotated

import typer

from hrag.cli.options import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJson,
    Credentials,
    Indexer,
    Tenant,
    Yes,
    all_collections,
    confirm,
    connect,
    connection_options,
)
from hrag.cli.terminal import (
    Column,
    Fit,
    output,
    print_json,
    print_line,
    show_note,
    show_table,
)
from hrag.text.noun_counts import counted
from hrag.text.plain_text import printable
from hrag.values.collections import NO_EMBEDDER, Collection, SettingsRequest, SummaryUnit
from hrag.values.limits import MAX_LEVELS, MAX_OVERLAP_RATIO

# A call of ReembedCollection works for about five seconds, and then ends with the documents that it
# is embedding, which takes long with a slow model.
REEMBED_TIMEOUT_S = 600.0
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The collection's name.", show_default=False)
]
AliasArgument = Annotated[
    str, typer.Argument(metavar="ALIAS", help="The alias's name.", show_default=False)
]
_COLLECTION_COLUMNS = (
    Column("collection"),
    Column("documents", Fit.NEVER),
    Column("levels"),
    Column("overlap", Fit.NEVER),
    Column("embedder"),
    Column("analyzer"),
    Column("summaries"),
)


@connection_options
def list_collections(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """List a tenant's collections with their settings.

    hrag status shows how much each collection contains and how much of it is indexed.

    \b
    Examples:
      hrag collections list
      hrag collections list --tenant acme --json
    """
    with connect(credentials, indexer) as client:
        listed = list(all_collections(client, tenant))
    if as_json:
        print_json([asdict(collection) for collection in listed])
    elif listed:
        show_table(output(), _COLLECTION_COLUMNS, map(_collection_row, listed))
    else:
        output().print(f"tenant {printable(tenant)} has no collections yet", markup=False)


def _collection_row(collection: Collection) -> tuple[object, ...]:
    settings = collection.settings
    return (
        collection.name,
        collection.document_count,
        ", ".join(map(str, settings.tree.level_sizes)),
        f"{settings.tree.overlap_ratio:g}",
        settings.embedder,
        settings.analyzer or "none",
        settings.summaries.value,
    )


@connection_options
def create_collection(
    credentials: Credentials,
    name: NameArgument,
    tenant: Tenant = DEFAULT_TENANT,
    level_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS,...",
            help="Maximum size of the chunks of each level in tokens, smallest level first. One "
            "size means flat chunking, with a single level.",
        ),
    ] = None,
    overlap_ratio: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=MAX_OVERLAP_RATIO,
            help="The fraction of a chunk that the next chunk of its level repeats.",
        ),
    ] = None,
    embedding_level: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_LEVELS - 1, help="The level that is embedded and searched."),
    ] = None,
    return_level: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_LEVELS - 1, help="The level that small_to_big returns."),
    ] = None,
    summaries: Annotated[
        SummaryUnit | None,
        typer.Option(
            help="Which parts of a document get a summary each, for searches with --mode "
            "summary_first."
        ),
    ] = None,
    analyzer: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="The language of the texts, for searches by words, such as english or german; "
            "simple means no stemming.",
        ),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help=f"The embedder. {NO_EMBEDDER} means no vectors: searches use words alone."
        ),
    ] = None,
    index_headings: Annotated[
        bool | None,
        typer.Option(
            "--index-headings/--no-index-headings",
            help="Let searches find a leaf by its document's title and its section's headings too.",
            show_default=False,
        ),
    ] = None,
    keep_originals: Annotated[
        bool | None,
        typer.Option(
            "--keep-originals/--no-keep-originals",
            help="Keep the files from which documents are read; hrag original returns them. "
            "Default: the indexer's HRAG_KEEP_ORIGINALS.",
            show_default=False,
        ),
    ] = None,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Create a collection. Its settings never change, except for the version of the analyzer.

    For each setting that is not given, the indexer's default applies.

    \b
    Examples:
      hrag collections create guides
      hrag collections create books --summaries section --level-sizes 256,1024,4096
      hrag collections create logs --embedder none --analyzer simple
    """
    request = SettingsRequest(
        level_sizes=None if level_sizes is None else _parse_level_sizes(level_sizes),
        overlap_ratio=overlap_ratio,
        embedding_level=embedding_level,
        return_level=return_level,
        summaries=summaries,
        embedder=embedder,
        analyzer=analyzer,
        index_headings=index_headings,
        keep_originals=keep_originals,
    )
    with connect(credentials, indexer) as client:
        created = client.create_collection(tenant, name, request)
    if as_json:
        print_json(asdict(created))
    else:
        print_line(f"created collection {created.name}", style="green")


def _parse_level_sizes(value: str) -> tuple[int, ...]:
    """Returns the level sizes in `value`, the value of the option `--level-sizes`.

    Raises BadParameter if `value` is not a list of whole numbers.
    """
    try:
        return tuple(int(size) for size in value.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{value!r} is not a list of whole numbers such as 256,512,1024,2048",
            param_hint="--level-sizes",
        ) from None


@connection_options
def delete_collection(
    credentials: Credentials,
    name: NameArgument,
    tenant: Tenant = DEFAULT_TENANT,
    yes: Yes = False,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Delete a collection with all its documents.

    The command asks for confirmation, unless --yes is given. Without a terminal and without
    --yes it deletes nothing.

    \b
    Examples:
      hrag collections delete guides
      hrag collections delete guides --yes
    """
    with connect(credentials, indexer) as client:
        content = counted(client.get_collection(tenant, name).document_count, "document")
        confirm(f"Delete collection {name} of tenant {tenant} with {content}?", yes=yes)
        sequence = client.delete_collection(tenant, name)
    if as_json:
        print_json({"collection": name, "sequence": sequence})
    else:
        print_line(f"deleted collection {name} with {content}", style="green")


@connection_options
def reembed(
    credentials: Credentials,
    name: NameArgument,
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Embed a collection again, with the current embedder, while it is searched and written.

    Texts, chunk trees and summaries are kept; only vectors are made again. First restart both
    services with the new embedder in HRAG_EMBEDDER and the old one in HRAG_PREVIOUS_EMBEDDER. They
    then serve collections of both. The command needs the role admin.

    The documents are copied into the collection NAME.reembed. At the end, this collection gets the
    name and the aliases of the collection, in one step. What is ingested, changed or deleted
    meanwhile is ingested, changed or deleted in both. The tenant's quota must have room for both.

    If the command or the indexer is interrupted, run the command again: it continues. To give up,
    stop the command and delete the collection NAME.reembed. If the collection has the current
    embedder already, the command does nothing.

    \b
    Examples:
      hrag reembed guides
      hrag reembed guides --tenant acme --json
    """
    embedded = 0
    with connect(credentials, indexer) as client:
        while True:
            progress = client.reembed_collection(tenant, name, timeout_s=REEMBED_TIMEOUT_S)
            embedded += progress.embedded_documents
            if progress.is_finished:
                break
            remaining = counted(progress.remaining_documents, "document")
            show_note(f"embedded {embedded:,}, {remaining} remaining")
    settings = progress.collection.settings
    if as_json:
        shown = {"collection": progress.collection.name, "embedder": settings.embedder}
        print_json({**shown, "embedded_documents": embedded, "sequence": progress.sequence})
    elif progress.sequence:
        print_line(
            f"collection {progress.collection.name} has embedder {settings.embedder} now; embedded "
            f"{counted(embedded, 'document')}",
            style="green",
        )
    else:
        print_line(f"collection {progress.collection.name} has embedder {settings.embedder}")


@connection_options
def list_aliases(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """List a tenant's aliases and the collections that they name.

    Every command accepts an alias in place of a collection's name.

    \b
    Example:
      hrag aliases list
    """
    with connect(credentials, indexer) as client:
        listed = client.list_aliases(tenant)
    if as_json:
        print_json([asdict(alias) for alias in listed])
    elif listed:
        rows = [(alias.name, alias.collection) for alias in listed]
        show_table(output(), (Column("alias"), Column("collection")), rows)
    else:
        output().print(f"tenant {printable(tenant)} has no aliases", markup=False)


@connection_options
def set_alias(
    credentials: Credentials,
    alias: AliasArgument,
    collection: Annotated[
        str,
        typer.Argument(
            metavar="COLLECTION",
            help="The collection that the alias will name.",
            show_default=False,
        ),
    ],
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Let an alias name a collection. From then on, searches for the alias use this collection.

    To change settings while searches run, create a new collection with other settings, fill it,
    then set the alias to it.

    \b
    Example:
      hrag aliases set guides guides-2026
    """
    with connect(credentials, indexer) as client:
        change = client.set_alias(tenant, alias, collection)
    if as_json:
        print_json(asdict(change))
        return
    previous = f" instead of {change.previous_collection}" if change.previous_collection else ""
    print_line(f"{change.alias.name} names {change.alias.collection}{previous}", style="green")


@connection_options
def delete_alias(
    credentials: Credentials,
    alias: AliasArgument,
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Delete an alias.

    The collection that the alias names is not deleted.

    \b
    Example:
      hrag aliases delete guides
    """
    with connect(credentials, indexer) as client:
        sequence = client.delete_alias(tenant, alias)
    if as_json:
        print_json({"alias": alias, "sequence": sequence})
    else:
        print_line(f"deleted alias {alias}", style="green")
