"""Passages as the context of a prompt, each under a heading that a model can cite.

prompt = context(result.passages) + "\n\n" + question
"""

from collections.abc import Callable, Iterable

from hrag.answers import citations
from hrag.types import Passage

Heading = Callable[[Passage], str]


def by_page(passage: Passage) -> str:
    """Returns `[Page 3]` or `[Pages 3-4]`; empty if the document has no pages."""
    pages = citations.pages(passage.chunk)
    return f"[{pages.capitalize()}]" if pages else ""


def by_section(passage: Passage) -> str:
    """Returns `[title - section > subsection]`, without the parts that the passage lacks.

    A document without a title is named by its file, or else by its id.
    """
    return f"[{citations.heading(passage.chunk)}]"


def by_section_and_page(passage: Passage) -> str:
    """Returns `[title - section > subsection, page 3]`, without the parts it lacks."""
    chunk = passage.chunk
    return f"[{', '.join(filter(None, (citations.heading(chunk), citations.pages(chunk))))}]"


def context(
    passages: Iterable[Passage], heading: Heading = by_section, separator: str = "\n\n"
) -> str:
    """Returns the passages' texts in the order given, each below its heading.

    `heading` makes a heading of a passage, such as `by_page`; an empty one is left out.
    `separator` stands between passages.
    """
    blocks = ((heading(passage), passage.chunk.content.strip()) for passage in passages)
    return separator.join("\n".join(filter(None, block)) for block in blocks)
