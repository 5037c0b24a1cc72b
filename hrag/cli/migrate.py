"""`hrag migrate`: copies a whole store to another engine, then compares both stores."""

from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from hrag.cli.options import DEFAULT_DATA_DIR, AsJson, DataDir
from hrag.cli.store import audited
from hrag.cli.terminal import (
    ExitCode,
    Failure,
    interrupt_on_signals,
    print_json,
    print_line,
    progress_lines,
)
from hrag.text.noun_counts import counted

if TYPE_CHECKING:
    from hrag.config import EngineSettings
    from hrag.engine.transfer.transfer_catalog import Difference
    from hrag.engine.transfer.transfer_report import TransferProgress, TransferReport


def migrate(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="ENGINE",
            help="Engine of the store that is copied.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="ENGINE",
            help="Engine of the store that receives the copy.",
            show_default=False,
        ),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    dsn_file: Annotated[
        Path | None,
        typer.Option(
            "--dsn-file",
            metavar="FILE",
            dir_okay=False,
            help="File with PostgreSQL's connection string, readable only by its owner. "
            "Default: HRAG_POSTGRES_DSN.",
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace documents that differ in the target."),
    ] = False,
    verify_only: Annotated[
        bool, typer.Option("--verify-only", help="Compare both stores and write nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a store to another engine: embedded to postgres, or back.

    Collections, aliases, documents, chunk trees, vectors and summaries are copied unchanged;
    nothing is embedded or summarised again. The source is only read, so its retriever may run.
    Stop its indexer: changes during the copy may be missing in the target, and are reported.
    Quotas do not apply. At the end both stores are read and compared.

    If the command is interrupted, run it again: it continues, and writes nothing twice.
    Documents that differ in source and target are reported; they are replaced in the target only
    with --replace. Documents that exist only in the target are reported, and stay. If a collection
    has different settings in source and target, the command stops before it writes anything.

    The target's indexer builds the indexes afterwards; start it before the retriever.
    Sequence numbers start from the beginning in the target, so clients must discard every
    min_sequence that they have stored.

    The exit code is 0 if the target contains everything that the source contains, and 1 if there
    are differences; each of them is reported.

    \b
    Examples:
      hrag migrate --from embedded --to postgres --dsn-file dsn --data-dir /var/lib/hrag
      hrag migrate --from embedded --to postgres --verify-only
    """
    # The modules of settings and storage are slow to import, so only commands that need them
    # import them.
    from hrag.engine.transfer.transfer_report import TransferProgress  # noqa: PLC0415

    if source == target:
        raise Failure(f"--from and --to are both {source}", ExitCode.USAGE)
    if verify_only and replace:
        raise Failure(
            "--verify-only writes nothing, so --replace is not allowed with it", ExitCode.USAGE
        )
    stores = [_settings(engine, data_dir, dsn_file) for engine in (source, target)]
    interrupt_on_signals()
    progress = TransferProgress()
    display = nullcontext() if as_json else progress_lines(lambda: progress_line(progress))
    with display:
        if verify_only:
            report = _verify(stores, progress)
        else:
            report = _migrate(stores, progress, replace=replace)
    if as_json:
        print_json({"source": source, "target": target, **asdict(report)})
    else:
        _show(report, source, target, verify_only=verify_only)
    if report.difference_count:
        raise typer.Exit(ExitCode.FAILED)


def _settings(engine: str, data_dir: Path, dsn_file: Path | None) -> "EngineSettings":
    """Returns the settings of the engine with the name `engine`.

    `data_dir` and the DSN in `dsn_file` replace the settings of the environment. If `dsn_file` is
    None, the DSN is from the environment too. Raises Failure if `engine` or a setting is invalid.
    """
    from hrag.config import EngineSettings, SettingsError, load  # noqa: PLC0415

    if engine not in _engine_names():
        allowed = ", ".join(_engine_names())
        raise Failure(f"engine {engine!r} is unknown; it must be one of {allowed}", ExitCode.USAGE)
    overrides: dict[str, Any] = {"HRAG_ENGINE": engine, "HRAG_DATA_DIR": data_dir}
    if dsn_file is not None:
        overrides["HRAG_POSTGRES_DSN"] = _dsn(dsn_file)
    # The setting is cleared, so that the engine reads from the primary server of PostgreSQL. A
    # replica may lag, and the documents that it lacks would be reported as differences.
    overrides["HRAG_POSTGRES_READ_DSN"] = ""
    try:
        return load(EngineSettings, **overrides)
    except SettingsError as error:
        raise Failure(str(error), ExitCode.USAGE) from None


def _engine_names() -> tuple[str, ...]:
    """Returns the allowed values of HRAG_ENGINE."""
    from hrag.config import EngineSettings  # noqa: PLC0415

    return get_args(EngineSettings.model_fields["engine"].annotation)


def _dsn(file: Path) -> str:
    from hrag.host.private_files import read_secret  # noqa: PLC0415

    try:
        return read_secret(file)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise Failure(f"--dsn-file {file}: {problem}", ExitCode.USAGE) from None


def _migrate(
    stores: "list[EngineSettings]", progress: "TransferProgress", *, replace: bool
) -> "TransferReport":
    from hrag.engine import open_engine  # noqa: PLC0415
    from hrag.engine.transfer.transfer import transfer  # noqa: PLC0415

    names = {"source": stores[0].engine, "target": stores[1].engine}
    with (
        audited("migrate", **names, store=str(stores[0].data_dir), replace=replace) as entry,
        closing(open_engine(stores[0])) as source,
        closing(open_engine(stores[1])) as target,
    ):
        read, writer, existing = source.reader(), target.writer(), target.reader()
        report = transfer(read, writer, existing, progress, replace=replace)
        entry.update(
            documents=report.documents,
            copied=report.copied,
            replaced=report.replaced,
            differences=report.difference_count,
        )
    return report


def _verify(stores: "list[EngineSettings]", progress: "TransferProgress") -> "TransferReport":
    from hrag.engine import open_engine  # noqa: PLC0415
    from hrag.engine.transfer.transfer import verify  # noqa: PLC0415

    with closing(open_engine(stores[0])) as source, closing(open_engine(stores[1])) as target:
        return verify(source.reader(), target.reader(), progress)


def progress_line(progress: "TransferProgress") -> str:
    """Returns a line such as `copying acme/handbook: 1,200 of 9,000 documents`."""
    step = f"{progress.step or 'opening'} {progress.collection}".rstrip()
    return f"{step}: {progress.done:,} of {counted(progress.total, 'document')}"


def _show(report: "TransferReport", source: str, target: str, *, verify_only: bool) -> None:
    if not verify_only:
        print_line(
            f"copied {counted(report.copied, 'document')}, replaced {report.replaced:,}, "
            f"{report.present:,} existed already"
        )
    for difference in report.differences:
        print_line(_difference_line(difference), style="red")
    more = report.difference_count - len(report.differences)
    if more:
        print_line(f"and {more:,} more", style="red")
    compared = (
        f"compared {counted(report.documents, 'document')} in "
        f"{counted(report.collections, 'collection')}: "
    )
    if report.difference_count:
        count = counted(report.difference_count, "difference")
        print_line(f"{compared}{count}", style="bold red")
    else:
        print_line(f"{compared}{target} contains everything that {source} contains", style="green")


def _difference_line(difference: "Difference") -> str:
    """Returns a line such as `acme/handbook document d7: differs: vectors`."""
    collection = "/".join(filter(None, (difference.tenant_id, difference.collection)))
    document = f" document {difference.document_id}" if difference.document_id else ""
    return f"{collection}{document}: {difference.problem}"
