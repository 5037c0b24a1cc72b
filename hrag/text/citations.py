"""The citation of a chunk, for people and for models: title, sections and pages.

The pages of a document may also be rows of a table or seconds of a recording; then a citation names
these. It also says if text was recognised in a picture, because such text may have errors.

Titles are untrusted. Here they are put on one line, without control characters.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import attrgetter

from hrag.text.plain_text import one_line
from hrag.values.answers import Citation
from hrag.values.chunks import Chunk, Span
from hrag.values.read_report import PageUnit
from hrag.values.search import ChosenSection

Citable = Chunk | ChosenSection

_CHAR_START = attrgetter("char_start")
_MINUTE_S, _HOUR_S = 60, 3600


def name(cited: Citable) -> str:
    """Returns the document's title, or else the name of its source file, or else its id."""
    file_name = _file_name(cited.source) if isinstance(cited, Chunk) else ""
    return one_line(cited.title or file_name) or cited.document_id


def _file_name(source: str) -> str:
    """Returns the last part of a path; "" for a URL, whose last part may not be a file name."""
    return "" if "://" in source else source.replace("\\", "/").rpartition("/")[2]


def sections(cited: Citable) -> str:
    """Returns the section path as `section > subsection`.

    The first section is left out if its title repeats the document's name.
    """
    path = [one_line(title) for title in cited.section_path]
    return " > ".join(path[1:] if path[:1] == [name(cited)] else path)


def heading(cited: Citable) -> str:
    """Returns `title - section > subsection`, without the parts that the document does not have."""
    return " - ".join(filter(None, (name(cited), sections(cited))))


def pages_of(chunk: Chunk, span: Span) -> tuple[int, int]:
    """Returns the numbers of the first and the last page of a span in a chunk.

    Returns (0, 0) if the document has no pages.
    """
    starts = chunk.page_starts
    first = bisect_right(starts, span.char_start, key=_CHAR_START)
    last = bisect_left(starts, max(span.char_end, span.char_start + 1), key=_CHAR_START)
    return _page_after(chunk, first), _page_after(chunk, last)


def _page_after(chunk: Chunk, starts: int) -> int:
    """Returns the number of the page that begins at the last of the first `starts` page starts."""
    return chunk.page_starts[starts - 1].number if starts else chunk.first_page


def recognised_pages_of(chunk: Chunk, span: Span) -> tuple[int, ...]:
    """Returns the numbers of a span's pages whose text was recognised in a picture.

    The span must lie in the chunk.
    """
    if not chunk.recognised_pages:
        return ()
    first, last = pages_of(chunk, span)
    return tuple(number for number in chunk.recognised_pages if first <= number <= last)


def pages(cited: Citable) -> str:
    """Returns `page 3` or `pages 3-4`; "" if the document has no pages.

    Rows are `row 5` or `rows 5-8`, and times are `00:01:12` or `00:01:12-00:01:30`. If text of the
    pages was recognised in a picture, ` (recognised)` follows.
    """
    return _pages(cited, "page", "pages")


def short_pages(cited: Citable | Citation) -> str:
    """Returns the same as `pages`, but with `p. 3` for a page and `p. 3-4` for several pages."""
    return _pages(cited, "p.", "p.")


def _pages(cited: Citable | Citation, one: str, several: str) -> str:
    """Returns the pages, with `one` before a single number and `several` before two numbers."""
    first, last = cited.first_page, cited.last_page
    if not first:
        return ""
    recognised = " (recognised)" if cited.recognised_pages else ""
    match cited.page_unit:
        case PageUnit.PAGE:
            return _range(first, last, one, several) + recognised
        case PageUnit.ROW:
            if _reaches_next_sheet(cited):
                return f"from row {first}"
            return _range(first, last, "row", "rows")
        case PageUnit.SECOND:
            return _time(first) if first == last else f"{_time(first)}-{_time(last)}"


def _reaches_next_sheet(cited: Citable | Citation) -> bool:
    """Returns True if the rows of a chunk are in several sheets, each of which counts from 1.

    Then `rows 1-3` could mean 3 rows of the first sheet, or all its rows and 3 of the next sheet.
    """
    starts = cited.page_starts if isinstance(cited, Chunk) else ()
    numbers = (cited.first_page, *(page.number for page in starts), cited.last_page)
    return any(following < number for number, following in pairwise(numbers))


def _range(first: int, last: int, one: str, several: str) -> str:
    return f"{one} {first}" if first == last else f"{several} {first}-{last}"


def _time(seconds: int) -> str:
    """Returns a time as hours, minutes and seconds, for example `00:01:12`."""
    hours, rest = divmod(seconds, _HOUR_S)
    return f"{hours:02}:{rest // _MINUTE_S:02}:{rest % _MINUTE_S:02}"
