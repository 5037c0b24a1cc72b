"""`hrag read`: shows what hrag reads of files, without a server and without storing anything."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from hrag.cli.file_options import AsFormat, Encoding, KeepBoilerplate
from hrag.cli.file_reader import FileReader
from hrag.cli.ingest_files import FoundDocuments, find
from hrag.cli.ingest_progress import (
    option_hint,
    picture_skip_reason,
    show_skipped,
    skipped_picture,
)
from hrag.cli.input_documents import (
    STANDARD_INPUT,
    GivenFields,
    InputDocument,
    Unreadable,
    standard_input,
)
from hrag.cli.read_report import left_out_lines, report_fields, report_from, report_text
from hrag.cli.terminal import Failure, output, print_json_line, print_line
from hrag.text.plain_text import printable
from hrag.values.errors import InvalidArgument
from hrag.values.read_report import PageUnit, ReadReport

_INDENT = "  "


def read(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Files, folders and archives; - means standard input.",
            readable=False,
            show_default=False,
        ),
    ],
    glob: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="The files of folders and archives that match, as for hrag ingest.",
            show_default=False,
        ),
    ] = None,
    mime_type: AsFormat = "",
    encoding: Encoding = "",
    keep_boilerplate: KeepBoilerplate = False,
    document_id: Annotated[
        str,
        typer.Option(
            "--id",
            help="The document id of standard input, whose ending may show its format.",
            show_default=False,
        ),
    ] = "",
    is_verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Show also what was left out, and each skipped file."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON for each file.")
    ] = False,
) -> None:
    """Show the text, pages and sections that hrag reads of files. Needs no server.

    The files are read as an indexer on this machine reads them: with the same limits, and with the
    formats whose libraries are installed here. The text is Markdown. A line shows where each page
    begins, unless the pages are rows of a table or times of a recording.

    With --json, positions of pages and sections are offsets in characters of the text.

    The exit code is 1 if any file cannot be read.

    \b
    Examples:
      hrag read report.pdf
      hrag read old.txt --encoding windows-1250
      hrag read pages.zip --verbose
      hrag read docs/ --json | jq .report
    """
    fields = GivenFields(
        document_id=document_id,
        encoding=encoding,
        mime_type=mime_type,
        keep_boilerplate=keep_boilerplate,
    )
    inputs = _find_inputs(paths, glob or [], fields)
    failures = 0
    skipped = list(inputs.skipped)
    with FileReader() as reader:
        for document in inputs.documents:
            try:
                answer = reader.read(document.read())
            except (Unreadable, InvalidArgument) as problem:
                error = {"type": type(problem).__name__, "message": str(problem), "field": ""}
                answer = {"error": error}
            reason = _skip_reason(document, answer)
            failures += "error" in answer and not reason
            if as_json:
                print_json_line({"input": document.label, **_json_fields(answer)})
            elif reason:
                message = answer["error"]["message"]
                skipped.append(skipped_picture(document.label, reason, message))
            elif "error" in answer:
                error = answer["error"]
                hint = option_hint(error["type"], error["field"])
                print_line(f"{document.label}: {error['message']}{hint}", style="red")
            else:
                _show(document.label, answer, is_verbose=is_verbose)
    if not as_json:
        show_skipped(skipped, is_verbose=is_verbose)
    if failures:
        raise typer.Exit(1)


def _json_fields(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer whose report has the same fields as in the output of `hrag ingest`."""
    if "error" in answer:
        return answer
    return {**answer, "report": report_fields(report_from(answer["report"]))}


def _skip_reason(document: InputDocument, answer: dict[str, Any]) -> str:
    """Returns why a picture in a folder or an archive is skipped, or an empty text."""
    if "error" not in answer or not document.may_be_skipped:
        return ""
    return picture_skip_reason(answer["error"]["type"], answer["error"]["field"])


def _find_inputs(
    paths: Sequence[Path], globs: Sequence[str], fields: GivenFields
) -> FoundDocuments:
    if STANDARD_INPUT in paths:
        if len(paths) > 1 or globs:
            raise typer.BadParameter("- must be the only FILE, without --glob")
        return FoundDocuments([standard_input(fields)])
    inputs = find(paths, globs, fields)
    if not inputs.documents:
        raise Failure(f"no files to read in {', '.join(map(str, paths))}")
    return inputs


def _show(label: str, answer: dict[str, Any], *, is_verbose: bool) -> None:
    """Prints what was read of a file: a summary, the sections, and the text."""
    report = report_from(answer["report"])
    console = output()
    console.print(Text(f"{label}: {report_text(report)}", style="bold"), soft_wrap=True)
    if answer["title"]:
        print_line(f"title: {answer['title']}")
    for name, value in answer["metadata"].items():
        print_line(f"{name}: {value if isinstance(value, str) else ', '.join(value)}")
    for section in answer["sections"]:
        page = _page_at(answer["pages"], section["char_start"], report)
        print_line(f"{_INDENT * section['depth']}{section['title']}{page}")
    for line in _text_lines(answer, report):
        console.print(line, soft_wrap=True)
    if is_verbose:
        for left_out in left_out_lines(report):
            print_line(f"left out: {left_out}")


def _page_at(pages: list[dict[str, Any]], position: int, report: ReadReport) -> str:
    """Returns the page of a section as a text, for example ` (page 3)`; empty without pages."""
    numbers = [page["number"] for page in pages if page["char_start"] <= position]
    return f" ({report.page_unit} {numbers[-1]})" if numbers else ""


def _text_lines(answer: dict[str, Any], report: ReadReport) -> Iterator[Text]:
    text, position = answer["text"], 0
    yield Text("")
    if report.page_unit is PageUnit.PAGE:
        for page in answer["pages"]:
            if before := text[position : page["char_start"]].rstrip("\n"):
                yield Text(printable(before))
            recognised = ", recognised" if page["is_recognised"] else ""
            yield Text(f"--- page {page['number']}{recognised} ---", style="dim")
            position = page["char_start"]
    yield Text(printable(text[position:].rstrip("\n")))
    yield Text("")
