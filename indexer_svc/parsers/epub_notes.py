"""Finds the notes of a book's chapters on other pages of the book.

Many books have one page with the notes of all chapters. A note is understood with the text that
refers to it, so each note is written after the first chapter that refers to it, and left out of the
page of notes. Only links that the book marks as references to notes are followed.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexer_svc.parsers.package import resolved

_REFERENCES = '[role="doc-noteref"], [epub\\:type~="noteref"]'
_NOTE_TAGS = ("li", "aside", "p", "div", "section", "dd", "td")
_INLINE_ANCESTORS = 4
# A book has one page of notes, or one for each chapter. A page stays in memory until it is written.
_MAX_PAGES = 64
_MAX_NOTES = 50_000

LoadPage = Callable[[str], LexborHTMLParser | None]


class Note(NamedTuple):
    """A note on another page: the text of the mark that refers to it, its page and its element."""

    mark: str
    page: LexborHTMLParser
    node: LexborNode


class BookNotes:
    """The pages of notes of one book, and the notes that have been moved to their chapters."""

    def __init__(self, load: LoadPage) -> None:
        """Begins a book. `load` returns the page of a part, or None for a part that is not read."""
        self._load = load
        self._pages: dict[str, LexborHTMLParser] = {}
        self._targets: dict[str, dict[str, LexborNode]] = {}
        self._moved: dict[str, set[int]] = {}
        self._written: set[str] = set()
        self._note_count = 0

    def page(self, part: str) -> LexborHTMLParser | None:
        """Returns the page of a part if it has been loaded as a page of notes."""
        return self._pages.get(part)

    def moved(self, part: str) -> set[int]:
        """Returns the `mem_id`s of the notes of a page that belong to earlier chapters.

        The page is about to be written. So no further note is taken from it.
        """
        self._written.add(part)
        return self._moved.get(part, set())

    def of_chapter(self, part: str, page: LexborHTMLParser) -> list[Note]:
        """Returns the notes on other pages to which a chapter is the first to refer, in order."""
        notes = []
        for link in page.css(_REFERENCES):
            target, _, name = (link.attributes.get("href") or "").partition("#")
            notes_part = resolved(part, target) if target else part
            if not name or notes_part == part or notes_part in self._written:
                continue
            node = self._note(notes_part, name)
            if node is not None and self._note_count < _MAX_NOTES:
                self._note_count += 1
                self._moved[notes_part].add(node.mem_id)
                mark = " ".join(link.text().split()) if node.tag == "li" else ""
                notes.append(Note(mark, self._pages[notes_part], node))
        return notes

    def _note(self, part: str, name: str) -> LexborNode | None:
        """Returns the element of a note that has not been moved, or None."""
        if part not in self._targets and not self._add_page(part):
            return None
        target = self._targets[part].get(name)
        ancestors = _ancestors(target) if target is not None else iter(())
        note = next((node for node in ancestors if node.tag in _NOTE_TAGS), None)
        return None if note is None or note.mem_id in self._moved[part] else note

    def _add_page(self, part: str) -> bool:
        page = self._load(part) if len(self._pages) < _MAX_PAGES else None
        if page is None:
            return False
        self._pages[part] = page
        self._moved[part] = set()
        self._targets[part] = {
            element.attributes.get("id") or "": element for element in page.css("[id]")
        }
        return True


def _ancestors(node: LexborNode) -> Iterator[LexborNode]:
    """Yields a node and its next ancestors. The id of a note may be on a link inside of it."""
    ancestor: LexborNode | None = node
    for _ in range(_INLINE_ANCESTORS):
        if ancestor is None:
            return
        yield ancestor
        ancestor = ancestor.parent
