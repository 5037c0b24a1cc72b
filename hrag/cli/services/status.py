"""`hrag status`: shows what a tenant has stored, and the state of the retriever."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.pages import all_collections
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    AsJson,
    Indexer,
    Retriever,
    Tenant,
)
from hrag.cli.terminal.console import output, print_json
from hrag.cli.terminal.render import counted
from hrag.text.plain_text import printable
from hrag.values.collections import Collection, SummaryUnit
from hrag.values.quotas import TenantUsage
from hrag.values.status import IndexStatus, ReaderStatus, ServerInfo

if TYPE_CHECKING:
    from hrag.client import Client

Row = tuple[Collection, IndexStatus]


@connection_options
def status(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's collections and the retriever's settings.

    Leaves are the smallest chunks: they are embedded and searched. The tail consists of the
    leaves that are not in an index file (a segment) yet. It is scanned exactly, so new leaves
    are found at once. The column sequence shows the collection's last change, and the column
    sealed the last change that segments cover. Stores in PostgreSQL have neither tail nor
    segments.

    For collections with summaries, the command also shows the number of summaries, of documents
    that still wait for summaries, and of tokens that a chat model has read and written for
    summaries. The last line of a tenant shows its total usage and its quota.

    \b
    Examples:
      hrag status
      hrag status --tenant acme --json
    """
    with connect(credentials, indexer, retriever) as client:
        rows = list(_rows(client, tenant))
        server = client.server_info()
    if as_json:
        _print_json(tenant, rows, server)
    else:
        _show(tenant, rows, server, output())


def _rows(client: "Client", tenant: str) -> Iterator[Row]:
    for collection in all_collections(client, tenant):
        yield collection, client.index_status(tenant, collection=collection.name)


def _print_json(tenant: str, rows: list[Row], server: ServerInfo) -> None:
    document = {
        "tenant_id": tenant,
        "collections": [
            {"collection": dataclasses.asdict(collection), "status": dataclasses.asdict(index)}
            for collection, index in rows
        ],
        "server": dataclasses.asdict(server),
    }
    print_json(document)


def _show(tenant: str, rows: list[Row], server: ServerInfo, console: Console) -> None:
    if rows:
        console.print(_amounts(rows))
        console.print()
        console.print(_settings(rows))
        console.print()
        if summarised := [row for row in rows if _has_summaries(row[0])]:
            console.print(_summaries(summarised))
            console.print()
        console.print(_usage(rows[-1][1].tenant), markup=False)
    else:
        console.print(f"tenant {printable(tenant)} has no collections yet", markup=False)
    console.print(
        f"retriever {server.version}, embedder {server.embedder}, "
        f"chat model {server.chat_model or 'none'}, "
        f"returns level {server.return_level}, {server.default_limit} passages from "
        f"{server.default_candidates} candidates by default",
        markup=False,
    )
    if server.reader is not None:
        console.print(_reader_line(server.reader), markup=False)


def _reader_line(reader: ReaderStatus) -> str:
    """Returns how far the retriever lags and which collections it has loaded."""
    lag = f"behind for {reader.lag_s:.1f} s" if reader.lag_s else "no lag"
    embedded = reader.embedded
    if embedded is None:
        return lag
    missing_commits = embedded.sequence - embedded.applied_sequence
    lag = f"{missing_commits:,} commits {lag}" if missing_commits else lag
    damaged = embedded.damaged_segments
    return (
        f"collections in memory: {embedded.collections_loaded:,}, "
        f"{decimal(embedded.loaded_bytes)} of {decimal(embedded.budget_bytes)}; {lag}"
        f"{f'; {damaged} damaged segments' if damaged else ''}"
    )


def _usage(usage: TenantUsage) -> str:
    quota = usage.quota
    stored = decimal(usage.stored_bytes)
    if quota.max_bytes is not None:
        stored += f" of {decimal(quota.max_bytes)}"
    parts = [
        _with_limit(usage.collections, quota.max_collections, "collection"),
        _with_limit(usage.documents, quota.max_documents, "document"),
        f"{stored} stored",
    ]
    if quota.calls_per_s is not None:
        parts.append(f"{quota.calls_per_s:g} calls a second, {quota.burst_calls:,} at once")
    return f"total: {', '.join(parts)}"


def _with_limit(number: int, limit: int | None, noun: str) -> str:
    """Returns `3 documents` without a limit, `3 of 10 documents` with one."""
    return counted(number, noun) if limit is None else f"{number:,} of {counted(limit, noun)}"


def _amounts(rows: list[Row]) -> Table:
    names = ["documents", "leaves", "tokens", "sequence"]
    if any(index.embedded for _, index in rows):
        names += ["tail", "segments", "sealed"]
    table = _table(*names)
    for collection, index in rows:
        amounts = [
            index.document_count,
            index.leaf_count,
            index.token_count,
            index.committed_sequence,
        ]
        if index.embedded is not None:
            embedded = index.embedded
            amounts += [
                embedded.tail_leaf_count,
                len(embedded.segments),
                embedded.sealed_sequence,
            ]
        table.add_row(collection.name, *(f"{amount:,}" for amount in amounts))
    return table


def _settings(rows: list[Row]) -> Table:
    table = _table("text", "vectors", "dimension", "levels", "embedder", "analyzer")
    for collection, index in rows:
        settings = collection.settings
        table.add_row(
            collection.name,
            decimal(index.text_bytes),
            decimal(index.vector_bytes),
            str(settings.dimension),
            ",".join(map(str, settings.tree.level_sizes)),
            Text(printable(settings.embedder)),
            settings.analyzer or "none",
        )
    return table


def _has_summaries(collection: Collection) -> bool:
    return collection.settings.summaries is not SummaryUnit.NONE


def _summaries(rows: list[Row]) -> Table:
    table = _table("a summary of each", "summaries", "documents waiting", "model's tokens")
    for collection, index in rows:
        amounts = (index.summary_count, index.unsummarised_documents, index.summary_tokens)
        unit = collection.settings.summaries.value
        table.add_row(collection.name, unit, *(f"{amount:,}" for amount in amounts))
    return table


def _table(*names: str) -> Table:
    """Returns a table with a column for the collection, then the named columns, right-aligned."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("collection", style="bold", overflow="fold")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    return table
