"""`hrag ingest`: stores files and folders in a collection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hrag.cli.ingest import json_lines
from hrag.cli.ingest.files import (
    EXTENSIONS,
    STANDARD_INPUT,
    FoundDocuments,
    find,
    is_folder,
    standard_input,
)
from hrag.cli.ingest.ingest_progress import IngestProgress, ingest_all
from hrag.cli.ingest.input_document import GivenFields, InputDocument
from hrag.cli.ingest.outcomes import (
    print_outcome,
    print_skipped,
    print_summary,
    show_outcomes,
    skipped_summary,
)
from hrag.cli.ingest.progress_display import shown_progress
from hrag.cli.ingest.prune import delete_all, gone_documents
from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.metadata import META_OPTION, VALUE_HELP, parse_metadata
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJsonLines,
    CollectionName,
    Indexer,
    Tenant,
)
from hrag.cli.terminal.console import Failure, output, print_json_line, print_line, show_note
from hrag.values.collections import NO_EMBEDDER, SettingsRequest, SummaryUnit
from hrag.values.errors import CollectionExists, CollectionNotFound
from hrag.values.limits import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from hrag.client import Client


def _checked_encoding(name: str) -> str:
    """Raises BadParameter unless Python knows the encoding."""
    try:
        b"a".decode(name or "utf-8", "replace")
    except (LookupError, UnicodeError):  # Some encodings are of host names alone.
        raise typer.BadParameter(f"{name!r} is no text encoding; cp1252 is one") from None
    return name


@connection_options
def ingest(
    credentials: Credentials,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Files and folders; - is standard input.",
            readable=False,  # A file that may not be read fails alone.
            show_default=False,
        ),
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    create: Annotated[
        bool, typer.Option("--create", help="Create the collection if it does not exist.")
    ] = False,
    summaries: Annotated[
        SummaryUnit | None,
        typer.Option(
            help="With --create: the part of a document that gets one summary, for searches "
            "with --mode summary_first. Default: the indexer's HRAG_SUMMARIES.",
            show_default=False,
        ),
    ] = None,
    analyzer: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="With --create: the language of the texts, for searches by words: english, german "
            "and so on, or simple for no stemming. Default: the indexer's HRAG_ANALYZER.",
            show_default=False,
        ),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help=f"With --create: {NO_EMBEDDER} makes a collection without vectors, which is "
            "searched by words alone. Default: the indexer's HRAG_EMBEDDER.",
            show_default=False,
        ),
    ] = None,
    glob: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Take the files of folders that match, whatever their extension; repeat it for "
            "several. A pattern with / is compared with the path inside the folder; **/ in it "
            "is any number of folders, or none.",
            show_default=False,
        ),
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option(
            META_OPTION,
            metavar="KEY=VALUE",
            help=f"Metadata of every document; repeat it for several keys. {VALUE_HELP}",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str, typer.Option(help="The title, of one document.", show_default=False)
    ] = "",
    document_id: Annotated[
        str,
        typer.Option(
            "--id",
            help="The document id, of one document; not with --prune.",
            show_default=False,
        ),
    ] = "",
    encoding: Annotated[
        str,
        typer.Option(
            callback=_checked_encoding,
            help="The encoding of the texts. Default: UTF-8, or what is detected.",
            show_default=False,
        ),
    ] = "",
    text_field: Annotated[
        str,
        typer.Option(
            metavar="FIELD",
            help="The field with the text, in each line of a .jsonl file. Default: the first of "
            f"{', '.join(json_lines.TEXT_FIELDS)}.",
            show_default=False,
        ),
    ] = "",
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete the documents of the folders whose files are gone."),
    ] = False,
    root: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="With --prune: what the folders' documents are known by, and the folder may lie "
            "elsewhere at each run: sources are paths inside it. Default: its absolute path.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJsonLines = False,
) -> None:
    """Store files and folders. They can be searched as soon as the command ends.

    From a folder, the files of known formats are stored, in sorted order, or those that --glob
    selects; hidden files and folders are left out, and links are followed once. By their
    extensions that are text, Markdown, reStructuredText, PDF, HTML, DOCX, PPTX, XLSX, EPUB, CSV,
    source code and JSON Lines. A file given by name is stored whatever its extension. The
    document id of a file is its path inside the folder, with ":" in place of "/".

    Each line of a .jsonl or .ndjson file is a document: its text is the --text-field, its id
    _id or id, and all fields but title, source and mime_type are metadata.

    Citations show the title that a document itself gives (front matter, first heading of
    level 1 or metadata), or else its file, with its sections, and its pages or slides.
    Texts that are not UTF-8 are decoded, and the encoding is named; binary files are refused.

    Running the command again is cheap: unchanged documents are neither embedded nor written.
    With --prune, documents whose files are gone are deleted too: those that an ingest with
    --prune stored from the same folder, and no others.

    The exit code is 1 if any file failed.

    \b
    Examples:
      hrag ingest docs/
      hrag ingest handbook.pdf notes.md --tenant acme --collection guides --create
      hrag ingest books/ --collection books --create --summaries section
      hrag ingest logs/ --glob '*.log' --collection logs --create --embedder none
      hrag ingest docs/ --meta team=search --meta year=2026 --prune
      pandoc notes.odt -t markdown | hrag ingest - --id notes.md --title Notes
    """
    wanted = {"summaries": summaries, "analyzer": analyzer, "embedder": embedder}
    _check_create(create, wanted)
    if root and not prune:
        raise typer.BadParameter("it goes with --prune", param_hint="--root")
    if document_id and prune:  # The next run without it would delete the document.
        raise typer.BadParameter(
            "not with --prune, which knows documents by their files", param_hint="--id"
        )
    given = GivenFields(parse_metadata(meta), title, document_id, encoding)
    found = _found(paths, glob or [], given, root if prune else None, text_field)
    with connect(credentials, indexer=indexer) as client:
        run = _Ingest(client, tenant, collection, found, as_json)
        if dry_run:
            run.show_plan()
            return
        if create:
            _create(client, tenant, collection, wanted)
        progress = run.store()
        run.show(progress, run.prune() if progress.error is None else [])
        if progress.error is not None:
            raise progress.error
    if progress.failures:
        raise typer.Exit(1)


def _found(
    paths: Sequence[Path],
    globs: Sequence[str],
    given: GivenFields,
    root: str | None,
    text_field: str,
) -> FoundDocuments:
    """What the paths lead to. Raises BadParameter or Failure if that is not what was asked for."""
    if STANDARD_INPUT in paths:
        if len(paths) > 1 or globs or root is not None:
            raise typer.BadParameter("- stands alone, without --glob and --prune")
        return FoundDocuments([standard_input(given)])
    if root is not None:
        for path in paths:
            if not is_folder(path):
                raise typer.BadParameter(f"{path} is no folder", param_hint="--prune")
    found = find(paths, globs, given, root, text_field)
    count = len(found.documents)
    if not count:
        what = " ".join(globs or EXTENSIONS)
        skipped = f"; {skipped_summary(found.skipped)}" if found.skipped else ""
        raise Failure(
            f"no files to ingest in {', '.join(map(str, paths))}; "
            f"folders are searched for {what}{skipped}"
        )
    if count > 1 and (given.title or given.document_id):
        option = "--title" if given.title else "--id"
        raise typer.BadParameter(
            f"it is for one document, and there are {count:,}", param_hint=option
        )
    return found


@dataclass(frozen=True, slots=True)
class _Ingest:
    """One run of the command: what it works with, and its parts."""

    client: "Client"
    tenant: str
    collection: str
    found: FoundDocuments
    as_json: bool

    def store(self) -> IngestProgress:
        """Stores the documents."""
        documents = self.found.documents
        if not self.as_json:
            return ingest_with_progress(
                self.client, self.tenant, self.collection, documents, output()
            )
        progress = IngestProgress(len(documents), tell=print_outcome)
        ingest_all(self.client, self.tenant, self.collection, documents, progress)
        return progress

    def prune(self) -> list[str]:
        """Deletes the documents whose files are gone, and returns their ids."""
        return list(delete_all(self.client, self.tenant, self.collection, self._gone()))

    def _gone(self) -> list[str]:
        if not self.found.present:
            return []
        if not self.found.is_complete:
            show_note("nothing is pruned, because not all folders could be listed")
            return []
        return gone_documents(self.client, self.tenant, self.collection, self.found.present)

    def show(self, progress: IngestProgress, deleted: Sequence[str]) -> None:
        """Prints what was done."""
        skipped = self.found.skipped
        if self.as_json:
            print_skipped(skipped)
            for document_id in deleted:
                print_json_line({"document_id": document_id, "outcome": "deleted"})
            print_summary(progress, skipped, deleted)
            return
        for document_id in deleted:
            print_line(f"deleted {document_id}: its file is gone")
        show_outcomes(progress)
        if summary := skipped_summary(skipped):
            print_line(summary)

    def show_plan(self) -> None:
        """Prints what would be done."""
        for each in self.found.documents:
            self._plan("store", input=each.label, size_bytes=each.size_bytes)
        try:
            gone = self._gone()
        except CollectionNotFound:
            gone = []
        for document_id in gone:
            self._plan("delete", document_id=document_id)
        if self.as_json:
            print_skipped(self.found.skipped)
        elif summary := skipped_summary(self.found.skipped):
            print_line(summary)

    def _plan(self, what: str, **fields: str | int) -> None:
        if self.as_json:
            print_json_line({**fields, "outcome": f"would {what}"})
        else:
            print_line(f"would {what} {next(iter(fields.values()))}")


def _check_create(create: bool, wanted: Mapping[str, str | None]) -> None:
    """Raises BadParameter for a setting of new collections without --create."""
    for setting, value in wanted.items():
        if value is not None and not create:
            raise typer.BadParameter(
                "it applies to new collections only: add --create", param_hint=f"--{setting}"
            )


def _create(client: "Client", tenant: str, collection: str, wanted: Mapping[str, Any]) -> None:
    """Creates the collection unless it exists with the same settings."""
    try:
        client.create_collection(tenant, collection, SettingsRequest(**wanted))
    except CollectionExists:
        settings = client.get_collection(tenant, collection).settings
        language = settings.analyzer.partition("/")[0]
        existing = {
            "summaries": settings.summaries,
            "analyzer": language or "none",
            "embedder": settings.embedder,
        }
        for setting, value in wanted.items():
            if value not in (None, existing[setting]):
                raise Failure(
                    f"collection {collection} exists already, with {setting} "
                    f"{existing[setting]}, not {value}; a collection's {setting} cannot be "
                    "changed after its creation"
                ) from None


def ingest_with_progress(
    client: "Client",
    tenant: str,
    collection: str,
    documents: Sequence[InputDocument],
    console: Console,
) -> IngestProgress:
    """Ingests documents, shows the progress, and returns the counts."""
    progress = IngestProgress(len(documents), sum(each.size_bytes for each in documents))
    with shown_progress(progress, console):
        ingest_all(client, tenant, collection, documents, progress)
    return progress
