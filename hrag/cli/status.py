"""`hrag status` shows what a tenant stores; `hrag health` shows whether the services serve."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal

from hrag.cli.options import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    AsJson,
    Credentials,
    Indexer,
    Retriever,
    Tenant,
    all_collections,
    connect,
    connection_options,
)
from hrag.cli.processes import INDEXER, RETRIEVER, Service
from hrag.cli.terminal import Column, Fit, output, print_json, print_line, show_table
from hrag.host.addresses import dial_address
from hrag.text.noun_counts import counted
from hrag.text.plain_text import printable
from hrag.values.collections import Collection, SummaryUnit
from hrag.values.quotas import TenantUsage
from hrag.values.status import IndexStatus, ReaderStatus, ServerInfo

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client
    from hrag.client.credentials import ClientCredentials
    from hrag.client.targets import Target

Row = tuple[Collection, IndexStatus]
Cells = tuple[object, ...]
Table = tuple[Sequence[Column], Sequence[Cells]]

_COLLECTION = Column("collection")
_AMOUNT_COLUMNS = (
    _COLLECTION,
    *(Column(name, Fit.NEVER) for name in ("documents", "leaves", "tokens", "text", "vectors")),
)
_SEQUENCE_COLUMNS = (_COLLECTION, Column("sequence", Fit.NEVER))
# Only the embedded engine has segments.
_SEGMENT_COLUMNS = tuple(Column(name, Fit.NEVER) for name in ("sealed", "tail", "segments"))
_SETTING_COLUMNS = (
    _COLLECTION,
    Column("dimension", Fit.NEVER),
    *(Column(name) for name in ("levels", "embedder", "analyzer")),
)
_SUMMARY_COLUMNS = (
    _COLLECTION,
    Column("summary of each"),
    *(Column(name, Fit.NEVER) for name in ("summaries", "documents waiting", "model's tokens")),
)

_HEALTH_TIMEOUT_S = 2.0
_NOT_SERVING = "it is starting or stopping, or it cannot use its store, as its log says"


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
    leaves that are not in an index file (a segment) yet. It is scanned exactly, so new leaves are
    found at once. The column sequence shows the sequence number of the collection's last change.
    The column sealed shows the sequence number up to which segments contain all changes. Stores
    in PostgreSQL have neither tail nor segments.

    For collections with summaries, the command also shows the number of summaries, of documents
    that still wait for summaries, and of tokens that a chat model has read and written for
    summaries. The line that begins with "total" shows the tenant's total usage and its quota.

    \b
    Examples:
      hrag status
      hrag status --tenant acme --json
    """
    with connect(credentials, indexer, retriever) as client:
        rows = list(_status_rows(client, tenant))
        server = client.server_info()
    if as_json:
        _print_status_json(tenant, rows, server)
    else:
        _show_status(tenant, rows, server, output())


def _status_rows(client: "Client", tenant: str) -> Iterator[Row]:
    for collection in all_collections(client, tenant):
        yield collection, client.index_status(tenant, collection=collection.name)


def _print_status_json(tenant: str, rows: list[Row], server: ServerInfo) -> None:
    document = {
        "tenant_id": tenant,
        "collections": [
            {"collection": asdict(collection), "status": asdict(index)}
            for collection, index in rows
        ],
        "server": asdict(server),
    }
    print_json(document)


def _show_status(tenant: str, rows: list[Row], server: ServerInfo, console: Console) -> None:
    if rows:
        for columns, cells in _tables(rows):
            show_table(console, columns, cells)
            console.print()
        _print_sentence(_usage_line(rows[-1][1].tenant), console)
    else:
        _print_sentence(f"tenant {printable(tenant)} has no collections yet", console)
    _print_sentence(
        f"retriever {server.version}, embedder {server.embedder}, "
        f"chat model {server.chat_model or 'none'}, "
        f"returns level {server.return_level}, {server.default_limit} passages from "
        f"{server.default_candidates} candidates by default",
        console,
    )
    if server.reader is not None:
        _print_sentence(_reader_line(server.reader), console)


def _print_sentence(text: str, console: Console) -> None:
    """Prints a text: wrapped at blanks on a terminal, as one line in a pipe."""
    console.print(text, markup=False, soft_wrap=not console.is_terminal)


def _reader_line(reader: ReaderStatus) -> str:
    """Returns a text that says for how long changes have waited until the retriever applies them.

    With the embedded engine, the text also says how many commits are waiting, how many collections
    the retriever has loaded, and how much memory they need.
    """
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


def _usage_line(usage: TenantUsage) -> str:
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
    """Returns a text such as `3 documents` or, with a limit of 10, `3 of 10 documents`."""
    return counted(number, noun) if limit is None else f"{number:,} of {counted(limit, noun)}"


def _tables(rows: list[Row]) -> Iterator[Table]:
    """Yields the tables about the collections, each with its columns and its rows.

    There are several tables, because a terminal of 80 columns cannot show one table of all columns.
    """
    yield _AMOUNT_COLUMNS, [_amount_cells(*row) for row in rows]
    if any(index.embedded for _, index in rows):
        yield (*_SEQUENCE_COLUMNS, *_SEGMENT_COLUMNS), [_segment_cells(*row) for row in rows]
    else:
        yield _SEQUENCE_COLUMNS, [_sequence_cells(*row) for row in rows]
    yield _SETTING_COLUMNS, [_setting_cells(collection) for collection, _ in rows]
    if summarised := [row for row in rows if _has_summaries(row[0])]:
        yield _SUMMARY_COLUMNS, [_summary_cells(*row) for row in summarised]


def _amount_cells(collection: Collection, index: IndexStatus) -> Cells:
    return (
        collection.name,
        index.document_count,
        index.leaf_count,
        index.token_count,
        decimal(index.text_bytes),
        decimal(index.vector_bytes),
    )


def _sequence_cells(collection: Collection, index: IndexStatus) -> Cells:
    return collection.name, index.committed_sequence


def _segment_cells(collection: Collection, index: IndexStatus) -> Cells:
    embedded = index.embedded
    if embedded is None:
        return *_sequence_cells(collection, index), "", "", ""
    return (
        *_sequence_cells(collection, index),
        embedded.sealed_sequence,
        embedded.tail_leaf_count,
        len(embedded.segments),
    )


def _setting_cells(collection: Collection) -> Cells:
    settings = collection.settings
    return (
        collection.name,
        settings.dimension,
        ", ".join(map(str, settings.tree.level_sizes)),
        settings.embedder,
        settings.analyzer or "none",
    )


def _has_summaries(collection: Collection) -> bool:
    return collection.settings.summaries is not SummaryUnit.NONE


def _summary_cells(collection: Collection, index: IndexStatus) -> Cells:
    return (
        collection.name,
        collection.settings.summaries.value,
        index.summary_count,
        index.unsummarised_documents,
        index.summary_tokens,
    )


class ServiceName(StrEnum):
    """The names of the services in the arguments of `hrag health`."""

    INDEXER = "indexer"
    RETRIEVER = "retriever"


@connection_options
def health(
    credentials: Credentials,
    services: Annotated[
        list[ServiceName] | None, typer.Argument(help="The services to check. Default: both.")
    ] = None,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Check whether the services are ready, for example as a container's health check.

    Each service is asked once and has two seconds to answer. The exit code is 0 if all of them
    serve. It is 1 if at least one does not; its line says why.

    \b
    Examples:
      hrag health
      hrag health retriever --retriever 127.0.0.1:50052
    """
    from hrag.client.credentials import ClientCredentials  # noqa: PLC0415

    access = ClientCredentials(**asdict(credentials))
    targets = {
        ServiceName.INDEXER: (INDEXER, indexer),
        ServiceName.RETRIEVER: (RETRIEVER, retriever),
    }
    states = {}
    for name in services or ServiceName:
        service, address = targets[name]
        problem = health_problem(service, address, access)
        states[name.value] = {"address": address, "serves": not problem, "problem": problem}
        if as_json:
            continue
        if problem:
            print_line(f"{service.name} does not serve at {address}: {problem}", "red")
        else:
            print_line(f"{service.name} serves at {address}", "green")
    if as_json:
        print_json(states)
    if not all(state["serves"] for state in states.values()):
        raise typer.Exit(1)


def health_problem(service: Service, address: str, access: "ClientCredentials") -> str:
    """Returns why the service at `address` does not serve; "" if it reports SERVING."""
    import grpc  # noqa: PLC0415
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    from hrag.client.calls import channel_options  # noqa: PLC0415
    from hrag.client.targets import Target  # noqa: PLC0415

    target = Target(service.name, dial_address(address), access, withholds_token=False)
    request = health_pb2.HealthCheckRequest(service=service.health_name)
    with access.channel(target.address, channel_options(target.address)) as channel:
        # The annotation `Any` is needed because the generated class HealthStub has no type hints.
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(request, timeout=_HEALTH_TIMEOUT_S)
        except grpc.RpcError as failure:
            return _failure_text(failure, target)
    return "" if reply.status == health_pb2.HealthCheckResponse.SERVING else _NOT_SERVING


def _failure_text(failure: Any, target: "Target") -> str:
    """Returns why a health check failed, in one line."""
    from grpc import StatusCode  # noqa: PLC0415

    match failure.code():
        case StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {_HEALTH_TIMEOUT_S:.0f} s"
        case StatusCode.NOT_FOUND:
            return "the other service of hrag listens there"
    message = printable(failure.details() or failure.code().name)
    return message + target.connection_hint(message)
