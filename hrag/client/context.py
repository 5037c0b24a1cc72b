"""Passages as the context of a prompt, each under a heading that a model can cite."""

from collections.abc import Callable, Iterable

from hrag.types import Passage

Heading = Callable[[Passage], str]


def by_page(passage: Passage) -> str:
    """`[Page 3]` or `[Pages 3-4]`; empty where the document has no pages."""
    pages = _pages(passage)
    return f"[{pages.capitalize()}]" if pages else ""


def by_section(passage: Passage) -> str:
    """`[title - section > subsection]`, as far as the passage has them.

    The document's id stands for a missing title.
    """
    return f"[{_place(passage)}]"


def by_section_and_page(passage: Passage) -> str:
    """`[title - section > subsection, page 3]`, as far as the passage has them."""
    return f"[{', '.join(filter(None, (_place(passage), _pages(passage))))}]"


def _place(passage: Passage) -> str:
    chunk = passage.chunk
    title = chunk.title or chunk.document_id
    sections = chunk.section_path[1:] if chunk.section_path[:1] == (title,) else chunk.section_path
    return " - ".join(filter(None, (title, " > ".join(sections))))


def _pages(passage: Passage) -> str:
    first, last = passage.chunk.first_page, passage.chunk.last_page
    if not first:
        return ""
    return f"page {first}" if first == last else f"pages {first}-{last}"


def context(
    passages: Iterable[Passage], heading: Heading = by_section, separator: str = "\n\n"
) -> str:
    """The passages' texts in the order given, each under its heading."""
    blocks = ((heading(passage), passage.chunk.content.strip()) for passage in passages)
    return separator.join("\n".join(filter(None, block)) for block in blocks)
