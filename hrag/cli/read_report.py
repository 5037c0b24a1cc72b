"""Shows what was read of a file, and what was not: on one line for people, or as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from hrag.text.noun_counts import counted
from hrag.values.formats import format_of
from hrag.values.read_report import LeftOut, LeftOutKind, PageUnit, ReadReport

UTF_8 = "utf-8"
_RANGES_SHOWN = 10
_UNIT_NAMES = {PageUnit.PAGE: "page", PageUnit.ROW: "row", PageUnit.SECOND: "cue"}
# For each kind of part that is left out, its name and the name of several.
_LEFT_OUT_NAMES = {
    LeftOutKind.RUNNING_HEAD: ("running head", "running heads"),
    LeftOutKind.PAGE_NUMBER: ("page number", "page numbers"),
    LeftOutKind.CONTENTS_PAGE: ("contents page", "contents pages"),
    LeftOutKind.BOILERPLATE: ("part around the content", "parts around the content"),
    LeftOutKind.OUTPUT: ("output", "outputs"),
    LeftOutKind.ATTACHMENT: ("attachment", "attachments"),
    LeftOutKind.METADATA: ("field of metadata", "fields of metadata"),
    LeftOutKind.SLANTED_TEXT: ("slanted text", "slanted texts"),
}


def report_fields(report: ReadReport) -> dict[str, Any]:
    """Returns a report as a JSON object, with the names of the fields of `ReadReport` in protos."""
    return {
        "mime_type": report.mime_type,
        "encoding": report.encoding,
        "encoding_guessed": report.is_encoding_guessed,
        "page_count": report.page_count,
        "page_unit": report.page_unit,
        "section_count": report.section_count,
        "table_count": report.table_count,
        "recognised_pages": list(report.recognised_pages),
        "unread_pages": list(report.unread_pages),
        "advice": report.advice,
        "left_out": [
            {"kind": part.kind, "part_count": part.part_count, "example": part.example}
            for part in report.left_out
        ],
    }


def is_notable(report: ReadReport) -> bool:
    """Returns True if a user should know more of a file than that it was read."""
    return (
        report.encoding not in ("", UTF_8)
        or bool(report.recognised_pages)
        or bool(report.unread_pages)
    )


def report_text(report: ReadReport) -> str:
    """Returns a report on one line.

    The format is shown by its extension. An example is `pdf, 12 pages, 5 sections; no readable
    text on 3 of 12 pages: 2-4`.
    """
    known = format_of(report.mime_type)
    parts = [known.name if known else report.mime_type]
    if report.encoding not in ("", UTF_8):
        parts.append(f"read as {report.encoding}")
    for count, name in (
        (report.page_count, _UNIT_NAMES[report.page_unit]),
        (report.section_count, "section"),
        (report.table_count, "table"),
    ):
        if count:
            parts.append(counted(count, name))
    return "; ".join((", ".join(parts), *_notes(report)))


def _notes(report: ReadReport) -> Iterator[str]:
    if report.is_encoding_guessed:
        yield "the encoding is a guess (--encoding sets it)"
    if report.recognised_pages:
        yield f"text recognised in pictures{_on_pages(report.recognised_pages, report.page_count)}"
    if report.unread_pages:
        yield f"no readable text{_on_pages(report.unread_pages, report.page_count)}"
    if report.advice:
        yield report.advice
    if report.left_out:
        left_out = (
            f"{part.part_count:,} {_LEFT_OUT_NAMES[part.kind][part.part_count != 1]}"
            for part in report.left_out
        )
        yield f"left out: {', '.join(left_out)}"


def _on_pages(numbers: Sequence[int], page_count: int) -> str:
    """Returns ` on 3 of 12 pages: 2-4`; an empty text if the file has a single page."""
    if page_count == 1:
        return ""
    of_all = f" of {page_count:,}" if page_count else ""
    return f" on {len(numbers):,}{of_all} pages: {ranges_text(numbers)}"


def left_out_lines(report: ReadReport) -> Iterator[str]:
    """Yields a line for each kind of part that is left out, with the first part as an example."""
    for part in report.left_out:
        name = _LEFT_OUT_NAMES[part.kind][part.part_count != 1]
        yield f"{part.part_count:,} {name}, for example: {part.example}"


def ranges_text(numbers: Sequence[int]) -> str:
    """Returns ascending numbers as ranges, for example `2, 5-7, …`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in ranges[:_RANGES_SHOWN]]
    return ", ".join([*shown, "…"] if len(ranges) > _RANGES_SHOWN else shown)


def report_from(fields: dict[str, Any]) -> ReadReport:
    """Returns the report with these fields, which are the fields of `ReadReport` as JSON."""
    return ReadReport(
        **{
            **fields,
            "page_unit": PageUnit(fields["page_unit"]),
            "recognised_pages": tuple(fields["recognised_pages"]),
            "unread_pages": tuple(fields["unread_pages"]),
            "left_out": tuple(
                LeftOut(LeftOutKind(kind), count, example)
                for kind, count, example in fields["left_out"]
            ),
        }
    )
