"""Passages as the context of a prompt, each under a heading that a model can cite."""

from collections.abc import Callable, Iterable

from hrag.types import Passage

Heading = Callable[[Passage], str]


def by_page(passage: Passage) -> str:
    """`[Page 3]` or `[Pages 3-4]`; empty where the document has no pages."""
    first, last = passage.chunk.first_page, passage.chunk.last_page
    if not first:
        return ""
    return f"[Page {first}]" if first == last else f"[Pages {first}-{last}]"


def by_section(passage: Passage) -> str:
    """`[title - section > subsection]`, as far as the passage has them.

    The document's id stands for a missing title.
    """
    chunk = passage.chunk
    title = chunk.title or chunk.document_id
    sections = chunk.section_path[1:] if chunk.section_path[:1] == (title,) else chunk.section_path
    return f"[{' - '.join(filter(None, (title, ' > '.join(sections))))}]"


def context(
    passages: Iterable[Passage], heading: Heading = by_section, separator: str = "\n\n"
) -> str:
    """The passages' texts in the order given, each under its heading."""
    blocks = ((heading(passage), passage.chunk.content.strip()) for passage in passages)
    return separator.join("\n".join(filter(None, block)) for block in blocks)
