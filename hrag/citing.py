"""How a chunk is named to people and to models: by title, sections and pages."""

from hrag.types import Chunk, Span


def name(chunk: Chunk) -> str:
    """The document's title; its id stands for a missing one."""
    return chunk.title or chunk.document_id


def sections(chunk: Chunk) -> str:
    """The section path; a first section that is the document's name is not said again."""
    path = chunk.section_path
    return " > ".join(path[1:] if path[:1] == (name(chunk),) else path)


def place(chunk: Chunk) -> str:
    """`title - section > subsection`, as far as the chunk has them."""
    return " - ".join(filter(None, (name(chunk), sections(chunk))))


def pages_of(chunk: Chunk, span: Span) -> tuple[int, int]:
    """First and last page of a part of a chunk; 0 where the document has no pages."""
    first = last = chunk.first_page
    for page in chunk.page_starts:
        if page.char_start <= span.char_start:
            first = page.number
        if page.char_start < max(span.char_end, span.char_start + 1):
            last = page.number
    return first, last


def pages(chunk: Chunk) -> str:
    """`page 3` or `pages 3-4`; empty where the document has no pages."""
    first, last = chunk.first_page, chunk.last_page
    if not first:
        return ""
    return f"page {first}" if first == last else f"pages {first}-{last}"
