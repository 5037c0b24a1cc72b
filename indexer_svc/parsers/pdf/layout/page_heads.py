"""Finds running heads, running feet and page numbers.

A row at the upper or lower edge of a page is one of them

- if a neighbouring page has the same text at the same place, and so at least three pages, or
- if a wide gap divides it, neighbouring pages have one of its parts at the same place, and most of
  the other parts are on two pages or more: the titles of a book and a chapter, or
- if it begins or ends with a number that grows by one with each page, at the same place, and the
  number stands apart from the other words, or the words are those of another such row, or
- if other rows at its place, in its size, are one of them: the title of a short chapter. They are
  most rows there, or all have a gap, as between the titles of a section and a chapter, or
- if a document has few pages, and the row stands above the text, which begins as high as that of a
  page without such a row: the first page often has none.

A number directly beside words that no other row has is that of a heading: `2 Use` and `3 Care` may
be the first lines of two pages. Numbers with dots inside (`2.1 Use`) are numbers of headings, too.
At the foot of a page, a number before a sentence or above the page number is that of a footnote.

A row can only be one of them if all rows between it and the edge of the page are, and if the text
of the page does not follow closely. So the header of a table that is repeated on each page is text,
and so are numbered steps and letters that begin with the same words. A page number may be close to
the text. Labels, cards and slides have a few words on each page, which may be the same or begin
with numbers. So the rows at a place are text if most of their pages have no other text.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from indexer_svc.parsers.pdf.layout.lines import TextRow, line_text

# So many rows at each edge of a page are examined.
_EDGE_ROWS = 3
# A running head is in this part of the page, and a foot in the part of the same height below.
_EDGE_SHARE = 0.2
_SAME_PLACE = 4.0
_MIN_PAGES = 3
# In a document of at most so many pages, a running head may be on one or two pages only.
_FEW_PAGES = 4
_NEIGHBOUR_PAGES = 2
# Rows of one table are at most this many font sizes apart.
_TABLE_PITCH = 2.2
_TEXT_PITCH = 1.6
_CELL_GAP = 1.0
# The number of a heading is at most so many font sizes apart from its words. A typesetter puts one
# font size there.
_NUMBER_GAP = 2.0
# Two parts of a running head, at both sides of a page, are at least so many font sizes apart. Words
# of a title or sentence never are.
_PART_GAP = 4.0
_BARS = ("|", "\u2022", "\u00b7")
# A head on one page is not larger than the text, which begins within a line of its usual height.
_MAX_HEAD_SIZE = 1.05
_SAME_TOP = 1.0
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_NUMBER_AT_EDGE = re.compile(
    r"^\W{0,2}(\d{1,5})\b(?!\.\d)|(?<![\d.,])(\d{1,5})\W{0,2}$"
    r"|^\W{0,2}([ivxlc]{1,7})\b|\b([ivxlc]{1,7})\W{0,2}$"
)
_TOTAL = r"\s?(?:/|of|von|de|sur)\s?(\d{1,5})"
_OF_TOTAL = re.compile(rf"(?<!\d)(\d{{1,5}}){_TOTAL}\W{{0,2}}$", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?][)\]\"'\u201d\u2019]*$")
_ONLY_NUMBER = re.compile(
    rf"\W*(?:(?:page|seite|p\.?)\s?)?(?:\d{{1,5}}(?:{_TOTAL})?|[ivxlc]{{1,7}})\W*", re.IGNORECASE
)


class EdgeRow(NamedTuple):
    """A row near an edge of a page. `distance` is the number of rows between it and the edge.

    `row_count` is the number of rows of the page.
    `inner_text` is the text of the next row towards the middle of the page if it is as close as the
    next line of a paragraph, or empty. `first_gap` is the gap after the first word, and `last_gap`
    the gap before the last word, both in font sizes. They are infinite if the row has one word.
    `is_divided` is True if a wide gap divides the row into two parts, whose texts are `parts`.
    """

    page: int
    is_top: bool
    distance: int
    text: str
    baseline: float
    size: float
    is_table_like: bool
    inner_text: str
    row_count: int
    first_gap: float
    last_gap: float
    is_divided: bool
    parts: tuple[str, ...]

    @property
    def is_only_number(self) -> bool:
        """True if the row is a page number and nothing else."""
        return bool(_ONLY_NUMBER.fullmatch(self.text))


def edge_rows(page: int, rows: Sequence[TextRow], height: float) -> list[EdgeRow]:
    """Returns the rows of a page that may be running heads, running feet or page numbers."""
    result = []
    limit = height * _EDGE_SHARE
    for distance, row in enumerate(rows[:_EDGE_ROWS]):
        if row.baseline > limit:
            break
        after = rows[distance + 1] if distance + 1 < len(rows) else None
        result.append(_edge_row(page, True, distance, row, after, len(rows)))
    for distance, row in enumerate(reversed(rows[-_EDGE_ROWS:])):
        if row.baseline < height - limit:
            break
        at = len(rows) - 2 - distance
        before = rows[at] if at >= 0 else None
        result.append(_edge_row(page, False, distance, row, before, len(rows)))
    return result


def _edge_row(
    page: int, is_top: bool, distance: int, row: TextRow, inner: TextRow | None, row_count: int
) -> EdgeRow:
    text = line_text(row.words)
    gaps = [(after.left - word.right) / row.size for word, after in pairwise(row.words)]
    cells = 1 + sum(gap > _CELL_GAP for gap in gaps)
    is_close = inner is not None and abs(inner.baseline - row.baseline) < _TABLE_PITCH * row.size
    is_table_like = is_top and cells >= 3 and is_close
    inner_text = ""
    if inner is not None and abs(inner.baseline - row.baseline) < _TEXT_PITCH * row.size:
        inner_text = line_text(inner.words)
    place = page, is_top, distance, text, row.baseline, row.size
    wide = [at for at, gap in enumerate(gaps, start=1) if gap > _PART_GAP]
    is_divided = len(wide) == 1
    parts = (line_text(row.words[: wide[0]]), line_text(row.words[wide[0] :])) if is_divided else ()
    first_gap, last_gap = (gaps[0], gaps[-1]) if gaps else (math.inf, math.inf)
    inside = is_table_like, inner_text, row_count, first_gap, last_gap
    return EdgeRow(*place, *inside, is_divided, parts)


def running_heads(rows: Iterable[EdgeRow], page_count: int) -> set[EdgeRow]:
    """Returns the rows that are running heads, running feet or page numbers.

    `rows` are the rows of consecutive pages, and `page_count` is the number of pages of the file.
    """
    rows = list(rows)
    places = _places(rows)
    confirmed: set[EdgeRow] = _above_text(rows) if page_count <= _FEW_PAGES else set()
    numbers_below = {
        row.page for row in rows if not row.is_top and not row.distance and row.is_only_number
    }
    for place in places:
        confirmed |= _repeated(place, page_count)
        confirmed |= _numbered(place, page_count, numbers_below)
    for place in places:
        for size_rows in _by_size(place):
            share = sum(row in confirmed for row in size_rows)
            if share >= _MIN_PAGES and share >= 0.5 * len(size_rows):
                confirmed.update(size_rows)
            divided = [row for row in size_rows if row.is_divided]
            if sum(row in confirmed for row in divided) >= _MIN_PAGES:
                confirmed.update(divided)
    return _outermost(_beside_text(_outermost(confirmed)))


def _beside_text(heads: set[EdgeRow]) -> set[EdgeRow]:
    """Returns the rows at places where most pages have other text than their running heads."""
    counts = Counter(head.page for head in heads)
    result: set[EdgeRow] = set()
    for place in _places(heads):
        alone = sum(counts[row.page] == row.row_count for row in place)
        if alone <= 0.5 * len(place):
            result.update(place)
    return result


def _places(rows: Iterable[EdgeRow]) -> list[list[EdgeRow]]:
    """Returns the rows by the place on the page where they stand."""
    places: list[list[EdgeRow]] = []
    for is_top in (True, False):
        last = float("-inf")
        ordered = sorted((row for row in rows if row.is_top is is_top), key=_baseline)
        for row in ordered:
            if row.baseline - last > _SAME_PLACE:
                places.append([])
            places[-1].append(row)
            last = row.baseline
    return places


def _repeated(place: Sequence[EdgeRow], page_count: int) -> set[EdgeRow]:
    by_text: dict[str, list[EdgeRow]] = defaultdict(list)
    for row in place:
        if not row.is_table_like:
            by_text[row.text].append(row)
    found: set[EdgeRow] = set()
    least = _MIN_PAGES if page_count > _FEW_PAGES else 2
    for same in by_text.values():
        pages = {row.page for row in same}
        near = [row for row in same if _has_neighbour(row.page, pages)]
        if len(near) >= least:
            found.update(near)
    by_part: dict[tuple[int, str], list[EdgeRow]] = defaultdict(list)
    for row in place:
        for part in enumerate(row.parts):
            by_part[part].append(row)
    for same in by_part.values():
        pages = {row.page for row in same}
        near = [row for row in same if _has_neighbour(row.page, pages)]
        shared = sum(len(by_text[row.text]) > 1 for row in near)
        if len(near) >= _MIN_PAGES and 2 * shared >= len(near):
            found.update(near)
    return found


def _has_neighbour(page: int, pages: set[int]) -> bool:
    return any(
        page + step in pages for step in range(-_NEIGHBOUR_PAGES, _NEIGHBOUR_PAGES + 1) if step
    )


def _numbered(
    place: Sequence[EdgeRow], page_count: int, numbers_below: Container[int]
) -> set[EdgeRow]:
    """Returns the rows with a number that grows with the page number.

    The words directly beside the number are those of another such row. `numbers_below` are the
    pages whose last row is a number alone.
    """
    groups: dict[tuple[int, bool], dict[EdgeRow, str]] = defaultdict(dict)
    for row in place:
        for offset, is_roman, words in _numbers(row, has_number_below=row.page in numbers_below):
            groups[offset, is_roman][row] = words
    found: set[EdgeRow] = set()
    is_short = page_count <= _FEW_PAGES
    least = 2 if is_short else _MIN_PAGES
    for words_of in groups.values():
        counts = Counter(words_of.values())
        same = [row for row, words in words_of.items() if not words or counts[words] > 1]
        pages = {row.page for row in same}
        near = [row for row in same if _has_neighbour(row.page, pages)]
        if len({row.page for row in near}) >= least:
            found.update(near)
    for row in place:
        total = _OF_TOTAL.search(row.text)
        number = total and int(total[1])
        if (total and number == row.page + 1 and int(total[2]) == page_count) or (
            row.distance == 0
            and row.text.strip("- ") == str(row.page + 1)
            and page_count <= _FEW_PAGES
        ):
            found.add(row)
    return found


def _above_text(rows: Iterable[EdgeRow]) -> set[EdgeRow]:
    """Returns the rows above the text of pages, if the text is as high as on pages without them.

    These rows are apart from the text, not larger, and no sentences: a page may begin with the last
    line of a paragraph.
    """
    tops: dict[int, list[EdgeRow]] = defaultdict(list)
    for row in rows:
        if row.is_top:
            tops[row.page].append(row)
    lowest = max((_top(min(page_rows, key=_distance)) for page_rows in tops.values()), default=0.0)
    found: set[EdgeRow] = set()
    for page_rows in tops.values():
        page_rows.sort(key=_distance)
        for count, (head, text) in enumerate(pairwise(page_rows), start=1):
            is_sentence = head.text[-1] in ".!?" and not head.is_only_number
            if is_sentence or head.is_table_like or head.size > _MAX_HEAD_SIZE * text.size:
                break
            is_apart = text.baseline - head.baseline > _TABLE_PITCH * text.size
            if is_apart and abs(_top(text) - lowest) <= _SAME_TOP * head.size:
                found.update(page_rows[:count])
    return found


def _top(row: EdgeRow) -> float:
    return row.baseline - row.size


def _numbers(row: EdgeRow, *, has_number_below: bool) -> Iterator[tuple[int, bool, str]]:
    """Yields the numbers at the ends of a row.

    The first value is how much the number exceeds the page index, and the second one is True if the
    number is Roman. The third one has the words directly beside the number, or is empty. The words
    of what may be a footnote count as directly beside it.
    """
    text = row.text
    for match in _NUMBER_AT_EDGE.finditer(text):
        arabic, roman = match[1] or match[2], match[3] or match[4]
        before, after = text[: match.start()], text[match.end() :]
        may_be_note = (
            not row.is_top
            and not before
            and bool(after.strip())
            and bool((has_number_below and row.distance) or _SENTENCE_END.search(after))
        )
        if _is_apart(row, before, after) and not may_be_note:
            words = ""
        else:
            words = "".join(filter(str.isalnum, before + after))
        yield int(arabic or _roman_value(roman)) - row.page, not arabic, words
    total = _OF_TOTAL.search(text)
    if total:
        yield int(total[1]) - row.page, False, ""


def _is_apart(row: EdgeRow, before: str, after: str) -> bool:
    """Returns True if a gap or a bar is between a number and the text before or after it."""
    if before:
        return row.last_gap > _NUMBER_GAP or before.rstrip().endswith(_BARS)
    return row.first_gap > _NUMBER_GAP or after.lstrip().startswith(_BARS)


def _roman_value(numeral: str) -> int:
    values = [_ROMAN[letter] for letter in numeral]
    return sum(
        -value if value < after else value
        for value, after in zip(values, [*values[1:], 0], strict=True)
    )


def _by_size(place: Sequence[EdgeRow]) -> Iterable[list[EdgeRow]]:
    by_size: dict[float, list[EdgeRow]] = defaultdict(list)
    for row in place:
        by_size[round(row.size, 1)].append(row)
    return by_size.values()


def _outermost(confirmed: set[EdgeRow]) -> set[EdgeRow]:
    """Returns the rows for which all rows between them and the edge are confirmed, too.

    The innermost of them is no line of a paragraph. Only a page number may be close to the text.
    """
    by_edge: dict[tuple[int, bool], list[EdgeRow]] = defaultdict(list)
    for row in confirmed:
        by_edge[row.page, row.is_top].append(row)
    result = set()
    for rows in by_edge.values():
        rows.sort(key=_distance)
        outer = [row for expected, row in enumerate(rows) if row.distance == expected]
        while outer and outer[-1].inner_text and not outer[-1].is_only_number:
            outer.pop()
        result.update(outer)
    return result


def _baseline(row: EdgeRow) -> float:
    return row.baseline


def _distance(row: EdgeRow) -> int:
    return row.distance
