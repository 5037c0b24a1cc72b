"""Numbers the footnotes and endnotes of a Word document as Word shows them.

Footnotes and endnotes are counted separately, in the order of the references to them. A section
may restart its notes. Word can also restart footnotes on each page; since pages are not known here,
those notes are counted through.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from indexer_svc.parsers.number_formats import format_number
from indexer_svc.parsers.package import Element
from indexer_svc.parsers.word.names import WORD, number_of, value_of

FOOTNOTE, ENDNOTE = "footnote", "endnote"
KINDS = (FOOTNOTE, ENDNOTE)

_DEFAULT_FORMATS = {FOOTNOTE: "decimal", ENDNOTE: "lowerRoman"}
_NOT_NOTES = ("separator", "continuationSeparator", "continuationNotice")


class WordNote(NamedTuple):
    """A note to which a text refers. `mark` is the mark in this text, for example `1`.

    `is_custom_mark` is True if the author has chosen the mark. Then the note's text has it too.
    """

    content: Element
    mark: str
    is_custom_mark: bool


@dataclass(slots=True)
class _NoteCounter:
    format: str
    start: int
    restarts_in_sections: bool
    count: int = 0


class WordNotes:
    """The notes of a document, and how many of them the text has referred to."""

    def __init__(self, parts: Mapping[str, Element], settings: Element | None) -> None:
        """Reads the notes.

        `parts` has the root elements of the parts with notes, by their kind. `settings` is the root
        element of the document's settings, or None.
        """
        self._contents = {
            (kind, note_id): note
            for kind, root in parts.items()
            for note_id, note in _notes(root, kind)
        }
        self._counters = {kind: _counter(settings, kind) for kind in KINDS}
        self._referenced: set[tuple[str, str]] = set()

    def begin_section(self, properties: Element) -> None:
        """Begins a section with the settings in its properties. Notes may restart there."""
        for kind, counter in self._counters.items():
            settings = properties.find(f"{WORD}{kind}Pr")
            if settings is not None:
                new = _counter(properties, kind)
                counter.format, counter.start = new.format, new.start
                counter.restarts_in_sections |= new.restarts_in_sections
            if counter.restarts_in_sections:
                counter.count = 0

    def refer(
        self, kind: str, note_id: str, custom_mark: str | None
    ) -> tuple[str, WordNote | None]:
        """Counts a reference; returns its mark, and the note if the reference is the first to it.

        `custom_mark` is the mark that the author has chosen, or None. If it is empty, the mark is
        unknown here. A reference with such a mark is not counted.
        """
        content = self._contents.get((kind, note_id))
        mark = custom_mark
        if mark is None:
            counter = self._counters[kind]
            mark = format_number(counter.start + counter.count, counter.format)
            counter.count += 1
        if content is None or (kind, note_id) in self._referenced:
            return mark, None
        self._referenced.add((kind, note_id))
        return mark, WordNote(content, mark, custom_mark is not None)


def _notes(root: Element, kind: str) -> Iterator[tuple[str, Element]]:
    for note in root.iterfind(f"{WORD}{kind}"):
        if note.get(f"{WORD}type") not in _NOT_NOTES:
            yield note.get(f"{WORD}id", ""), note


def _counter(settings: Element | None, kind: str) -> _NoteCounter:
    properties = None if settings is None else settings.find(f"{WORD}{kind}Pr")
    start = number_of(properties, f"{WORD}numStart")
    return _NoteCounter(
        value_of(properties, f"{WORD}numFmt") or _DEFAULT_FORMATS[kind],
        1 if start is None else start,
        value_of(properties, f"{WORD}numRestart") == "eachSect",
    )
