"""Seeded documents: the same name gives the same document on every machine.

A document is a report of several chapters. A chapter has sections, and some sections have
subsections. There are paragraphs, lists, code, tables, quotes and footnotes. Some titles occur in
several chapters, as in real reports.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.documents.generated_tables import small_table
from benchmarks.documents.sentences import Writer
from benchmarks.documents.source_document import (
    Block,
    Code,
    Heading,
    Item,
    Paragraph,
    Run,
    SourceDocument,
    Style,
    Text,
    plain,
)

_REPEATED_TITLES = ("Overview", "Requirements", "Summary")


def generated_document(name: str) -> SourceDocument:
    """Returns the document with this name, of about 1,500 to 5,000 words."""
    return _ReportWriter(Writer.named(name)).report(name)


@dataclass(slots=True)
class _ReportWriter:
    """Writes a report block by block."""

    _writer: Writer
    _notes: list[Text] = field(default_factory=list)

    def report(self, name: str) -> SourceDocument:
        """Returns the whole report."""
        writer = self._writer
        title = f"{writer.title()}: report {writer.between(2, 40)}"
        blocks: list[Block] = [Heading(1, plain(title)), Paragraph(writer.paragraph(4))]
        for _ in range(writer.between(3, 6)):
            blocks += self._chapter()
        return SourceDocument(name, title, tuple(blocks), tuple(self._notes))

    def _chapter(self) -> Iterator[Block]:
        writer = self._writer
        yield Heading(2, plain(writer.title()))
        yield from self._paragraphs(writer.between(1, 2))
        for _ in range(writer.between(1, 4)):
            repeated = writer.happens(0.15)
            title = writer.pick(_REPEATED_TITLES) if repeated else writer.title()
            yield Heading(3, plain(title))
            yield from self._section()
            if writer.happens(0.3):
                for _ in range(writer.between(2, 3)):
                    yield Heading(4, plain(writer.title()))
                    yield from self._paragraphs(writer.between(1, 2))

    def _section(self) -> Iterator[Block]:
        writer = self._writer
        yield from self._paragraphs(writer.between(1, 3))
        match writer.between(0, 7):
            case 0 | 1:
                yield from self._bullets()
            case 2:
                for number in range(1, writer.between(3, 7)):
                    yield Item(plain(writer.sentence()), number=number)
            case 3:
                yield Code(self._code())
            case 4 | 5:
                yield small_table(writer)
                yield from self._paragraphs(1)
            case 6:
                yield Paragraph(plain(writer.sentences(2)), is_quote=True)
        yield from self._paragraphs(writer.between(0, 1))

    def _bullets(self) -> Iterator[Block]:
        writer = self._writer
        for _ in range(writer.between(2, 5)):
            yield Item(plain(writer.sentence()))
            if writer.happens(0.15):
                for _ in range(2):
                    yield Item(plain(writer.sentence()), depth=2)

    def _code(self) -> str:
        writer = self._writer
        lines = (f"{writer.noun()} = {writer.between(1, 99)}" for _ in range(writer.between(2, 5)))
        return "\n".join([f"[{writer.noun()}]", *lines])

    def _paragraphs(self, count: int) -> Iterator[Block]:
        writer = self._writer
        for _ in range(count):
            text = writer.paragraph(writer.between(2, 6))
            if writer.happens(0.12):
                self._notes.append(plain(writer.sentence()))
                mark = Run(str(len(self._notes)), Style.NOTE)
                text = (*text, mark, Run(writer.sentence()))
            yield Paragraph(text)
