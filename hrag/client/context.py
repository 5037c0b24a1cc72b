r"""Passages as the context of a prompt, each under a heading that a model can cite.

prompt = context(result.passages) + "\n\n" + question
"""

from collections.abc import Callable, Iterable

from hrag.text import citations
from hrag.text.plain_text import quoted_lines
from hrag.values.chunks import Chunk
from hrag.values.search import Passage

_PARENTHESES = str.maketrans("[]", "()")

Heading = Callable[[Passage], str]


def by_page(passage: Passage) -> str:
    """Returns `[Page 3]` or `[Pages 3-4]`; empty if the document has no pages."""
    pages = citations.pages(passage.chunk)
    return f"[{pages.capitalize()}]" if pages else ""


def by_section(passage: Passage) -> str:
    """Returns `[title - section > subsection]`, without the parts that the passage lacks.

    A document without a title is named by its file, or else by its id.
    """
    return in_brackets(citations.heading(passage.chunk))


def by_section_and_page(passage: Passage) -> str:
    """Returns `[title - section > subsection, page 3]`, without the parts it lacks."""
    return of_chunk(passage.chunk)


def of_chunk(chunk: Chunk) -> str:
    """As `by_section_and_page`, for a chunk that no search has returned."""
    return in_brackets(", ".join(filter(None, (citations.heading(chunk), citations.pages(chunk)))))


def in_brackets(heading: str) -> str:
    """Returns `[heading]` with no other brackets, so that no title ends it and begins another."""
    return f"[{heading.translate(_PARENTHESES)}]"


def context(
    passages: Iterable[Passage],
    heading: Heading = by_section,
    separator: str = "\n\n",
    *,
    quoted: bool = True,
) -> str:
    """Returns the passages' texts in the order given, each below its heading.

    `heading` makes a heading of a passage, such as `by_page`; an empty one is left out.
    `separator` stands between passages. Each line of a text is quoted with `> `, so that no text
    can pass for another passage or for what surrounds it; `quoted` is False for what is no
    prompt.
    """
    quote = quoted_lines if quoted else str
    blocks = ((heading(passage), quote(passage.chunk.content.strip())) for passage in passages)
    return separator.join("\n".join(filter(None, block)) for block in blocks)
