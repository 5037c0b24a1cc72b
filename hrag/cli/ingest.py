"""`hrag ingest`: stores files and folders in a collection.

With --prune, documents whose files no longer exist are deleted. A document belongs to the root that
its metadata names (`ingest_root`): the folder's absolute path, or the name given by --root. Only an
ingest with --prune writes this key. A document is deleted if it belongs to a root of this ingest
and no file of the root has its id any more. Files that are skipped or refused are files of the root
too, so their documents are not deleted. Documents of other folders and programs are never deleted,
because they belong to other roots or to none. Exception: folders of the same path on two machines
share a root, unless --root names them. If a folder could not be listed completely, nothing is
deleted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hrag.cli import archives
from hrag.cli.file_options import AsFormat, Encoding, KeepBoilerplate
from hrag.cli.ingest_files import (
    EXTENSIONS,
    FoundDocuments,
    find,
    is_folder,
    require_readable,
    unreadable_reason,
)
from hrag.cli.ingest_progress import (
    DocumentOutcome,
    IngestProgress,
    ingest_all,
    ingest_with_progress,
    print_outcome,
    print_planned_outcome,
    print_planned_summary,
    print_skipped,
    print_summary,
    show_outcomes,
    show_report,
    show_reports,
    show_skipped,
    skipped_summary,
)
from hrag.cli.input_documents import STANDARD_INPUT, TEXT_FIELDS, GivenFields, standard_input
from hrag.cli.option_values import META_OPTION, VALUE_HELP, parse_metadata
from hrag.cli.options import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJsonLines,
    CollectionName,
    Credentials,
    Indexer,
    Tenant,
    all_documents,
    connect,
    connection_options,
    warn_of_unused,
)
from hrag.cli.terminal import Failure, output, print_json_line, print_line, show_note
from hrag.values.collections import NO_EMBEDDER, SettingsRequest, SummaryUnit
from hrag.values.documents import ROOT_KEY, IngestOutcome
from hrag.values.errors import (
    CollectionExists,
    CollectionNotFound,
    DocumentNotFound,
    ServiceUnavailable,
)
from hrag.values.filters import METADATA, Match
from hrag.values.ids import check_document_id
from hrag.values.limits import DEFAULT_COLLECTION

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client


@connection_options
def ingest(
    credentials: Credentials,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Files and folders; - means standard input.",
            # With `readable=True`, Typer would end the command if one of the files has no read
            # permission. With False, only the ingest of this file fails.
            readable=False,
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
            help="With --create: which parts of a document get a summary each, for searches with "
            "--mode summary_first. Default: the indexer's HRAG_SUMMARIES.",
            show_default=False,
        ),
    ] = None,
    analyzer: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="With --create: the language of the texts, for searches by words, such as "
            "english or german; simple means no stemming. Default: the indexer's HRAG_ANALYZER.",
            show_default=False,
        ),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help=f"With --create: {NO_EMBEDDER} creates a collection without vectors, which is "
            "searched by words alone. Default: the indexer's HRAG_EMBEDDER.",
            show_default=False,
        ),
    ] = None,
    glob: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Store the files of folders that match, with any extension. Repeat the option "
            "for several patterns. A pattern with / is compared with the path inside the folder; "
            "**/ in it stands for any number of folders, including none.",
            show_default=False,
        ),
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option(
            META_OPTION,
            metavar="KEY=VALUE",
            help=f"Metadata of every document. Repeat the option for several keys. {VALUE_HELP}",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str,
        typer.Option(help="The title. Allowed only for a single document.", show_default=False),
    ] = "",
    document_id: Annotated[
        str,
        typer.Option(
            "--id",
            help="The document id. Allowed only for a single document, and not with --prune.",
            show_default=False,
        ),
    ] = "",
    mime_type: AsFormat = "",
    encoding: Encoding = "",
    keep_boilerplate: KeepBoilerplate = False,
    text_field: Annotated[
        str,
        typer.Option(
            metavar="FIELD",
            help="The field that contains the text, in each line of a .jsonl file. Default: the "
            "first of "
            f"{', '.join(TEXT_FIELDS)}.",
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
            help="With --prune: a name that identifies the folders' documents. The folder may then "
            "have another path at each run, and sources are paths inside it. Default: the "
            "folder's absolute path. Machines that store different folders of the same path in "
            "one collection need different names.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Read the files, show what would be done, and store nothing."
        ),
    ] = False,
    is_verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Show what was read of each file, what was left out, and each skipped file.",
        ),
    ] = False,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJsonLines = False,
) -> None:
    """Store files and folders. They can be searched as soon as the command ends.

    From a folder, the command stores the files whose extension is known, or with --glob the files
    that match, in sorted order. Known are text, Markdown, PDF, HTML, Office documents, mail, CSV,
    source code and others; docs/guide/formats.md lists all. Hidden files and folders are left out,
    and links are followed once. A file that you name may have any extension, but it must be text
    or of a known format. The document id of a file is its path inside the folder, with ":" in place
    of "/". Archives (ZIP, TAR, GZ, TGZ) are opened like folders.

    Each line of a .jsonl or .ndjson file is a document: its text is the --text-field, its id is
    _id, id, document_id or doc_id, and all other fields except title, source and mime_type are
    metadata.

    Citations show a document's title (from front matter, the first heading of level 1 or
    metadata), otherwise its file, with its sections, and its pages or slides. The format and the
    encoding of a file are detected from its content. The command shows what was read, and what was
    not.

    Running the command again is cheap: unchanged documents are neither embedded nor written.
    With --prune, documents whose files no longer exist are deleted too, but only those that an
    ingest with --prune stored from the same folder.

    The exit code is 1 if any file failed.

    \b
    Examples:
      hrag ingest docs/
      hrag ingest handbook.pdf notes.md --tenant acme --collection guides --create
      hrag ingest books/ --collection books --create --summaries section
      hrag ingest logs/ --glob '*.log' --collection logs --create --embedder none
      hrag ingest docs/ --meta team=search --meta year=2026 --prune
      curl -s https://example.com/guide | hrag ingest - --id guide --title Guide
    """
    settings = {"summaries": summaries, "analyzer": analyzer, "embedder": embedder}
    _check_create(create, settings)
    if root and not prune:
        raise typer.BadParameter("--root is allowed only with --prune", param_hint="--root")
    # --id and --prune together are refused. If they were allowed, the document would have an id
    # that no file has. So the next run with --prune but without --id would delete the document.
    if document_id and prune:
        raise typer.BadParameter(
            "--id is not allowed with --prune, which identifies documents by their files",
            param_hint="--id",
        )
    user_fields = GivenFields(
        parse_metadata(meta), title, document_id, encoding, mime_type, keep_boilerplate
    )
    inputs = _find_inputs(paths, glob or [], user_fields, root if prune else None, text_field)
    with connect(credentials, indexer=indexer) as client:
        run = _Ingest(client, tenant, collection, inputs, as_json, is_verbose)
        if dry_run:
            progress = run.validate()
            if isinstance(progress.error, ServiceUnavailable) and not progress.completed:
                run.show_plan_without_indexer(progress.error)
                return
            run.show_plan(progress)
            if progress.error is not None:
                raise progress.error
            if progress.failures:
                raise typer.Exit(1)
            return
        if create:
            create_collection(client, tenant, collection, settings)
        progress = run.store()
        run.show(progress, run.prune() if progress.error is None else [])
        if progress.error is not None:
            raise progress.error
    if progress.failures:
        raise typer.Exit(1)


def _find_inputs(
    paths: Sequence[Path],
    globs: Sequence[str],
    user_fields: GivenFields,
    root: str | None,
    text_field: str,
) -> FoundDocuments:
    """Returns the documents in the files and folders at `paths`.

    Raises InvalidArgument for an invalid document id, BadParameter if an option is not allowed with
    these paths, and Failure if they contain no documents.
    """
    if user_fields.document_id:
        check_document_id(user_fields.document_id)
    if STANDARD_INPUT in paths:
        if len(paths) > 1 or globs or root is not None:
            raise typer.BadParameter("- must be the only PATH, without --glob and --prune")
        return FoundDocuments([standard_input(user_fields)])
    if root is not None:
        _require_folders(paths)
    if not any(is_folder(path) or archives.is_archive_name(str(path)) for path in paths):
        warn_of_unused("without a folder or an archive", {"--glob": bool(globs)})
    # A path that cannot be read is reported, and the others are stored.
    if all(map(unreadable_reason, paths)):
        require_readable(paths)
    inputs = find(paths, globs, user_fields, root, text_field)
    count = len(inputs.documents)
    if not count:
        patterns = " ".join(globs or (*EXTENSIONS, *archives.EXTENSIONS))
        skipped = f"; {skipped_summary(inputs.skipped)}" if inputs.skipped else ""
        raise Failure(
            f"no files to ingest in {', '.join(map(str, paths))}; "
            f"folders are searched for {patterns}{skipped}"
        )
    if count > 1 and (user_fields.title or user_fields.document_id):
        option = "--title" if user_fields.title else "--id"
        raise typer.BadParameter(
            f"{option} is allowed only for a single document, but there are {count:,}",
            param_hint=option,
        )
    return inputs


def _require_folders(paths: Iterable[Path]) -> None:
    for path in paths:
        if not is_folder(path):
            raise typer.BadParameter(f"{path} is not a folder", param_hint="--prune")


@dataclass(frozen=True, slots=True)
class _Ingest:
    """A run of `hrag ingest`, with a method for each of its steps."""

    client: "Client"
    tenant: str
    collection: str
    inputs: FoundDocuments
    as_json: bool
    is_verbose: bool

    def store(self) -> IngestProgress:
        """Stores the documents and returns their outcomes."""
        return self._send(print_outcome)

    def validate(self) -> IngestProgress:
        """Lets the indexer read the documents, and returns the outcomes that they would have."""
        return self._send(print_planned_outcome, validate_only=True)

    def _send(
        self, on_outcome: Callable[[DocumentOutcome], None], *, validate_only: bool = False
    ) -> IngestProgress:
        documents = self.inputs.documents
        target = self.client, self.tenant, self.collection, documents
        if not self.as_json:
            keeps_all = self.is_verbose or validate_only
            return ingest_with_progress(
                *target, output(), validate_only=validate_only, keeps_all=keeps_all
            )
        progress = IngestProgress(len(documents), on_outcome=on_outcome)
        ingest_all(*target, progress, validate_only=validate_only)
        return progress

    def prune(self) -> list[str]:
        """Deletes the documents whose files no longer exist, and returns their document ids.

        The ids of documents that another client has deleted meanwhile are not returned.
        """
        deleted = []
        for document_id in self._gone():
            try:
                self.client.delete_document(self.tenant, document_id, collection=self.collection)
            except DocumentNotFound:
                continue
            deleted.append(document_id)
        return deleted

    def _gone(self) -> list[str]:
        """Returns the ids of those documents in the collection whose files no longer exist.

        Returns no ids if a folder could not be listed. Raises CollectionNotFound if the collection
        does not exist.
        """
        present = self.inputs.present
        if not present:
            return []
        if not self.inputs.is_complete:
            show_note("nothing is pruned, because not all folders could be listed")
            return []
        in_roots = Match(f"{METADATA}{ROOT_KEY}", tuple(present))
        gone = []
        for document in all_documents(self.client, self.tenant, self.collection, in_roots):
            root = str(document.metadata.get(ROOT_KEY))
            if root in present and document.document_id not in present[root]:
                gone.append(document.document_id)
        return gone

    def show(self, progress: IngestProgress, deleted: Sequence[str]) -> None:
        """Prints the outcomes of the documents, the deleted documents and the skipped files.

        With --json, each outcome was already printed when it arrived, so this method prints the
        counts of the outcomes instead of the outcomes.
        """
        skipped = [*self.inputs.skipped, *progress.skipped]
        if self.as_json:
            print_skipped(self.inputs.skipped)
            for document_id in deleted:
                print_json_line({"document_id": document_id, "outcome": "deleted"})
            print_summary(progress, skipped, deleted)
            return
        for document_id in deleted:
            print_line(f"deleted {document_id}: its file is gone")
        show_reports(progress, is_verbose=self.is_verbose)
        show_outcomes(progress)
        show_skipped(skipped, is_verbose=self.is_verbose)

    def show_plan_without_indexer(self, error: ServiceUnavailable) -> None:
        """Prints which files an ingest without --dry-run would send.

        They are not read, because only the indexer can read them.

        Raises `error` if --prune needs the indexer.
        """
        if self.inputs.present:
            raise error
        show_note(f"the files were not read, because the indexer cannot be reached: {error}")
        for document in self.inputs.documents:
            if self.as_json:
                fields = {"input": document.label, "size_bytes": document.size_bytes}
                print_json_line({**fields, "outcome": "would store"})
            else:
                print_line(f"would store {document.label}")
        if self.as_json:
            print_skipped(self.inputs.skipped)
        else:
            show_skipped(self.inputs.skipped, is_verbose=self.is_verbose)

    def show_plan(self, progress: IngestProgress) -> None:
        """Prints what would be done. `progress` has the outcomes that documents would have."""
        try:
            gone = self._gone()
        except CollectionNotFound:
            gone = []
        skipped = [*self.inputs.skipped, *progress.skipped]
        if self.as_json:
            for document_id in gone:
                print_json_line({"document_id": document_id, "outcome": "would delete"})
            print_skipped(self.inputs.skipped)
            print_planned_summary(progress, skipped, gone)
            return
        for label, result in progress.reported:
            if result.report is not None:
                show_report(f"would store {label}", result.report, is_verbose=self.is_verbose)
            elif self.is_verbose:
                print_line(f"unchanged: {label}")
        for label, reason in progress.failures:
            print_line(f"{label}: {reason}", style="red")
        for document_id in gone:
            print_line(f"would delete {document_id}")
        unchanged = progress.outcomes[IngestOutcome.UNCHANGED]
        print_line(
            f"would store {progress.stored - unchanged:,}, delete {len(gone):,}; "
            f"{unchanged:,} unchanged, {len(progress.failures):,} failed"
        )
        show_skipped(skipped, is_verbose=self.is_verbose)


def _check_create(create: bool, settings: Mapping[str, str | None]) -> None:
    """Raises BadParameter if `settings` has a value but `create` is False.

    The settings apply only to a collection that this command creates.
    """
    for setting, value in settings.items():
        if value is not None and not create:
            raise typer.BadParameter(
                f"--{setting} applies only to new collections: add --create",
                param_hint=f"--{setting}",
            )


def create_collection(
    client: "Client", tenant: str, collection: str, settings: Mapping[str, Any]
) -> None:
    """Creates the collection with `settings`, unless it exists. None means the default.

    Raises Failure if the collection exists and one of its settings differs from `settings`.
    """
    try:
        client.create_collection(tenant, collection, SettingsRequest(**settings))
    except CollectionExists:
        stored = client.get_collection(tenant, collection).settings
        language = stored.analyzer.partition("/")[0]
        existing = {
            "summaries": stored.summaries,
            "analyzer": language or "none",
            "embedder": stored.embedder,
        }
        for setting, value in settings.items():
            if value not in (None, existing[setting]):
                raise Failure(
                    f"collection {collection} exists already, with {setting} "
                    f"{existing[setting]}, not {value}; a collection's {setting} cannot be "
                    "changed after its creation"
                ) from None
