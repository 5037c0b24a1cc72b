"""The citation of a chunk, for people and for models: title, sections and pages.

Titles are untrusted. Here they are put on one line, without control characters.
"""

from hrag.text.plain_text import one_line
from hrag.values.chunks import Chunk, Span
from hrag.values.search import ChosenSection

Citable = Chunk | ChosenSection


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
    first = last = chunk.first_page
    for page in chunk.page_starts:
        if page.char_start <= span.char_start:
            first = page.number
        if page.char_start < max(span.char_end, span.char_start + 1):
            last = page.number
    return first, last


def pages(cited: Citable) -> str:
    """Returns `page 3` or `pages 3-4`; "" if the document has no pages."""
    first, last = cited.first_page, cited.last_page
    if not first:
        return ""
    return f"page {first}" if first == last else f"pages {first}-{last}"
