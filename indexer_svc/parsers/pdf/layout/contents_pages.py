"""Finds tables of contents, and what they say about the sections.

An entry is a row that ends with a page number after dots, or after a gap at the right edge. The
page numbers of consecutive entries never fall. A table of contents is not part of the text, because
a search for the title of a section would find it instead of the section. Its titles confirm that
rows elsewhere are headings.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from indexer_svc.parsers.pdf.layout.lines import TextRow, line_text

_LEADER_ENTRY = re.compile(
    r"(?P<title>.*?[^\s.\u2026\u00b7_])\s*(?:[.\u2026\u00b7_]\s?){3,}\s*(?P<page>\d{1,5}|[ivxlcIVXLC]{1,7})\s*"
)
_NUMBER = re.compile(r"\d{1,5}|[ivxlcIVXLC]{1,7}")
_TITLE = re.compile(
    "(?:table of contents|contents|list of (?:figures|tables|illustrations|listings|algorithms)|"
    "figures|tables|inhalt|inhaltsverzeichnis|inhoud|inhoudsopgave|table des mati\u00e8res|"
    "\u00edndice|sum\u00e1rio|contenido|indice|sommaire|sommario|inneh\u00e5ll|indhold|obsah|"
    "\u76ee\\s*\u5f55|\u76ee\\s*\u6b21)",
    re.IGNORECASE,
)
_MIN_LEADER_ENTRIES = 3
_MIN_GAP_ENTRIES = 5
_ENTRY_GAP = 1.5
_MIN_RISING = 0.85
# Rows between two entries: the first lines of long titles, or headings of parts.
_MAX_ROWS_BETWEEN = 3


class ContentsEntry(NamedTuple):
    """A title in a table of contents, and the x at which it begins."""

    title: str
    left: float


class ContentsTable(NamedTuple):
    """The rows `start` to `end` of a region that are a table of contents."""

    start: int
    end: int
    entries: list[ContentsEntry]


def is_contents_title(text: str) -> bool:
    """Returns True if a line is the title of a table of contents."""
    return bool(_TITLE.fullmatch(" ".join(text.split()).strip(" .:")))


def contents_of(
    rows: Sequence[TextRow], page_count: int, *, continues: bool = False
) -> list[ContentsTable]:
    """Returns the tables of contents among the rows of a region.

    `continues` is True if the page before ends with a table of contents.
    """
    entries = {}
    with_leader = 0
    for index, row in enumerate(rows):
        entry = _entry(row)
        if entry is not None:
            entries[index] = entry
            with_leader += entry[2]
    if len(entries) < (2 if continues else _MIN_LEADER_ENTRIES):
        return []
    found = []
    indexes = sorted(entries)
    group = [indexes[0]]
    for index in [*indexes[1:], len(rows) + _MAX_ROWS_BETWEEN + 2]:
        if index - group[-1] <= _MAX_ROWS_BETWEEN + 1:
            group.append(index)
            continue
        contents = _checked(rows, group, entries, page_count, continues)
        if contents is not None:
            found.append(contents)
        group = [index]
    return found


def _entry(row: TextRow) -> tuple[str, int | None, bool] | None:
    """Returns title, page number and whether dots lead to it; None if the row is no entry.

    The page number is None if it is Roman.
    """
    last = row.words[-1]
    if not last.text[-1:].isalnum() or len(row.words) < 2:
        return None
    if not (last.text[-1].isdigit() or _NUMBER.fullmatch(last.text)):
        return None
    text = line_text(row.words)
    match = _LEADER_ENTRY.fullmatch(text)
    if match is not None:
        return match["title"], _page(match["page"]), True
    gap = last.left - row.words[-2].right
    if _NUMBER.fullmatch(last.text) and gap > _ENTRY_GAP * row.size:
        title = line_text(row.words[:-1])
        if any(character.isalpha() for character in title):
            return title, _page(last.text), False
    return None


def _page(numeral: str) -> int | None:
    return int(numeral) if numeral.isdigit() else None


def _checked(
    rows: Sequence[TextRow],
    group: Sequence[int],
    entries: dict[int, tuple[str, int | None, bool]],
    page_count: int,
    continues: bool,
) -> ContentsTable | None:
    """Returns the table of contents with these entries, or None if it is another table."""
    chosen = [entries[index] for index in group]
    leaders = sum(entry[2] for entry in chosen)
    pages = [entry[1] for entry in chosen if entry[1] is not None]
    rising = sum(page <= after for page, after in pairwise(pages))
    if rising < _MIN_RISING * (len(pages) - 1):
        return None
    if pages and sum(page <= 1.5 * page_count + 50 for page in pages) < 0.9 * len(pages):
        return None
    first = group[0]
    title_at = next(
        (at for at in range(first - 1, max(-1, first - 4), -1) if _is_title_row(rows[at])), None
    )
    rights = [rows[index].words[-1].right for index in group]
    is_aligned = max(rights) - min(rights) < 3.0
    is_contents = leaders >= _MIN_LEADER_ENTRIES and leaders >= 0.4 * len(group)
    if not is_contents and not (
        is_aligned
        and (title_at is not None or continues)
        and len(group) >= (2 if continues else _MIN_GAP_ENTRIES)
    ):
        return None
    found = [ContentsEntry(entries[index][0], rows[index].words[0].left) for index in group]
    start = first if title_at is None else title_at
    return ContentsTable(start, group[-1] + 1, found)


def _is_title_row(row: TextRow) -> bool:
    return is_contents_title(line_text(row.words))
