"""How a chunk is named to people and to models: by title, sections and pages."""

from hrag.types import ChosenSection, Chunk, Span

Part = Chunk | ChosenSection


def name(part: Part) -> str:
    """The document's title, or else the name of the file it comes from, or else its id."""
    file_name = _file_name(part.source) if isinstance(part, Chunk) else ""
    return part.title or file_name or part.document_id


def _file_name(source: str) -> str:
    """The last part of a path; empty for a URL, whose last part may name nothing."""
    return "" if "://" in source else source.replace("\\", "/").rpartition("/")[2]


def sections(part: Part) -> str:
    """The section path; a first section that is the document's name is not said again."""
    path = part.section_path
    return " > ".join(path[1:] if path[:1] == (name(part),) else path)


def place(part: Part) -> str:
    """`title - section > subsection`, as far as the part has them."""
    return " - ".join(filter(None, (name(part), sections(part))))


def pages_of(chunk: Chunk, span: Span) -> tuple[int, int]:
    """First and last page of a part of a chunk; 0 where the document has no pages."""
    first = last = chunk.first_page
    for page in chunk.page_starts:
        if page.char_start <= span.char_start:
            first = page.number
        if page.char_start < max(span.char_end, span.char_start + 1):
            last = page.number
    return first, last


def pages(part: Part) -> str:
    """`page 3` or `pages 3-4`; empty where the document has no pages."""
    first, last = part.first_page, part.last_page
    if not first:
        return ""
    return f"page {first}" if first == last else f"pages {first}-{last}"
