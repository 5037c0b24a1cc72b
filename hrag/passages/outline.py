"""The part of a document that citations need: its fields (such as title), sections and pages."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hrag.passages.headings import heading_end
from hrag.values.chunks import PageStart
from hrag.values.read_report import PageUnit
from hrag.values.reply_limit import field_bytes, struct_bytes, text_bytes
from hrag.values.tree import NONE, PageSpan, Section, section_parents, section_path


@dataclass(frozen=True)
class Outline:
    """A document without its text and tree. The method `of` creates an Outline.

    `section_parents[i]` is the index of the section that contains section i, or NONE.
    `section_starts[i]` and `page_starts[i]` are the character offsets at which section i and page i
    begin. `page_unit` says what the numbers of the pages mean. `name_source` is the source from
    which the document's name in the lexical index comes.
    """

    document_id: str
    title: str
    source: str
    metadata: Mapping[str, Any]
    sections: tuple[Section, ...]
    pages: tuple[PageSpan, ...]
    section_parents: tuple[int, ...]
    section_starts: "array[int]"
    page_starts: tuple[int, ...]
    page_unit: PageUnit
    name_source: str

    @classmethod
    def of(
        cls,
        document_id: str,
        title: str,
        source: str,
        metadata: Mapping[str, Any],
        sections: Sequence[Section],
        pages: Sequence[PageSpan],
        page_unit: PageUnit = PageUnit.PAGE,
        name_source: str | None = None,
    ) -> "Outline":
        """Returns the outline of a document: its fields, sections and pages, without text and tree.

        Sections and pages must be in order of the text. `name_source` is `source`, if it is not
        passed.
        """
        starts = tuple(page.char_start for page in pages)
        return cls(
            document_id=document_id,
            title=title,
            source=source,
            metadata=metadata,
            sections=tuple(sections),
            pages=tuple(pages),
            section_parents=section_parents(sections),
            section_starts=array("I", (section.char_start for section in sections)),
            page_starts=starts,
            page_unit=page_unit,
            name_source=source if name_source is None else name_source,
        )

    @cached_property
    def encoded_bytes(self) -> int:
        """How many bytes the document's id, title, source and metadata take in an encoded chunk."""
        texts = text_bytes(self.document_id, self.title, self.source)
        return texts + (field_bytes(struct_bytes(self.metadata)) if self.metadata else 0)

    def section_path(self, section: int) -> tuple[str, ...]:
        """Returns the titles from the outermost section down to the section with this index.

        Returns () if `section` is NONE, which means no section.
        """
        return section_path(self.sections, self.section_parents, section)

    def section_at(self, char: int) -> int:
        """Returns the index of the innermost section that contains a character of the text.

        `char` is the offset of the character. Returns NONE if no section contains it.
        """
        before = bisect_right(self.section_starts, char)
        return before - 1 if before else NONE

    def heading_end(self, text: str, start: int, section: int) -> int:
        """Returns the offset after the heading of a section that begins at `start` in `text`.

        `section` is the index of the section. Returns `start` if the section has no heading.
        """
        return heading_end(text, start, self.sections[section].title)

    def page_range(self, char_start: int, char_end: int) -> tuple[int, int]:
        """Returns the page numbers of the first and the last page of a span of the text.

        Returns (0, 0) if the document has no pages.
        """
        if not self.page_starts:
            return 0, 0
        first, last = self._page_indexes(char_start, char_end)
        return self.pages[first].number, self.pages[last].number

    def page_starts_in(self, char_start: int, char_end: int) -> tuple[PageStart, ...]:
        """Returns the starts of all pages of a span except its first page."""
        if not self.page_starts:
            return ()
        first = bisect_right(self.page_starts, char_start)
        last = bisect_left(self.page_starts, char_end)
        return tuple(PageStart(page.number, page.char_start) for page in self.pages[first:last])

    @cached_property
    def are_pages_recognised(self) -> tuple[bool, ...]:
        """True for each page whose text was recognised in a picture; () if there is no such page.

        Few documents have such pages, so the others need no memory.
        """
        flags = tuple(page.is_recognised for page in self.pages)
        return flags if any(flags) else ()

    def recognised_pages_in(self, char_start: int, char_end: int) -> tuple[int, ...]:
        """Returns the numbers of a span's pages whose text was recognised in a picture."""
        if not self.are_pages_recognised:
            return ()
        first, last = self._page_indexes(char_start, char_end)
        return tuple(page.number for page in self.pages[first : last + 1] if page.is_recognised)

    def _page_indexes(self, char_start: int, char_end: int) -> tuple[int, int]:
        """Returns the indexes of the first and the last page of a span.

        The document must have pages. Text before the first page counts as part of this page.
        """
        first = bisect_right(self.page_starts, char_start) - 1
        last = bisect_left(self.page_starts, char_end) - 1
        return max(first, 0), max(last, 0)
