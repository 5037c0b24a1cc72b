"""The result of a parser, as plain values that a parser process can send to the indexer.

This module imports little, because each parser process imports it when it starts. Offsets count
code points of the text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from hrag.values.read_report import NO_REPORT, LeftOut, LeftOutKind, PageUnit, ReadReport

PAGE_BREAK = "\n\n"
MAX_HEADINGS = 65_535
MAX_EXAMPLE_CHARS = 200
"""The maximum length of an example in a report."""


class PageRange(NamedTuple):
    """The range of a page in the text: from `char_start` to before `char_end`.

    `number` is the page's number, or 0 for its position counted from 1. `is_recognised` is True if
    the text was recognised in a picture of the page.
    """

    char_start: int
    char_end: int
    number: int = 0
    is_recognised: bool = False


class Edit(NamedTuple):
    """The half-open range of a part of a source text that was replaced by `length` characters."""

    char_start: int
    char_end: int
    length: int


class Heading(NamedTuple):
    """The heading of a section: its title, its depth from 1, and the offset where it begins."""

    title: str
    depth: int
    char_start: int


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The text of a file, its pages and headings in order of position, and its title.

    `title` is the title that the file itself contains, or an empty string. `page_unit` is what the
    numbers of the pages mean. `metadata` are fields of the file that become metadata of the
    document where the client sends none of that name, for example the sender of a mail; each value
    is a text or a list of texts. `edits` are the parts of the source text that the parser replaced,
    in order, if it left all other parts unchanged; they move the pages of a client.
    """

    text: str
    pages: tuple[PageRange, ...] = ()
    headings: tuple[Heading, ...] = ()
    title: str = ""
    page_unit: PageUnit = PageUnit.PAGE
    metadata: Mapping[str, str | list[str]] = field(default_factory=dict)
    report: ReadReport = NO_REPORT
    edits: tuple[Edit, ...] = ()


def without_metadata(report: ReadReport, names: Sequence[str]) -> ReadReport:
    """Returns a report that also says that the fields with these names are no metadata."""
    parts = {part.kind: part for part in report.left_out}
    example = names[0].encode("utf-8", "replace").decode()[:MAX_EXAMPLE_CHARS]
    part = parts.get(LeftOutKind.METADATA, LeftOut(LeftOutKind.METADATA, 0, example))
    parts[LeftOutKind.METADATA] = part._replace(part_count=part.part_count + len(names))
    return replace(report, left_out=tuple(parts.values()))


def joined(texts: Sequence[str]) -> tuple[str, tuple[PageRange, ...]]:
    """Returns the texts joined by one blank line, and the range of each text in the result."""
    pages = []
    start = 0
    for text in texts:
        pages.append(PageRange(start, start + len(text)))
        start += len(text) + len(PAGE_BREAK)
    return PAGE_BREAK.join(texts), tuple(pages)


def moved(offsets: Sequence[int], edits: Sequence[Edit]) -> Iterator[int]:
    """Yields where offsets of a text are after `edits`. Both are in ascending order.

    An offset inside a part that was replaced moves to the end of the replacement.
    """
    lengths = [edit.length - (edit.char_end - edit.char_start) for edit in edits]
    shifts = [*accumulate(lengths, initial=0)]
    at = 0
    for offset in offsets:
        while at < len(edits) and edits[at].char_start < offset:
            at += 1
        if at and offset < edits[at - 1].char_end:
            yield edits[at - 1].char_end + shifts[at]
        else:
            yield offset + shifts[at]
