r"""Makes the context of a prompt: passages as text, each below a heading that a model can cite.

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
    """Returns `[Page 3]` or `[Pages 3-4]`, or an empty text if the document has no pages."""
    pages = citations.pages(passage.chunk)
    return f"[{pages.capitalize()}]" if pages else ""


def by_section(passage: Passage) -> str:
    """Returns `[title - section > subsection]`; leaves out what the passage does not have.

    If the document has no title, the heading begins with the name of its file. If it has no file
    either, the heading begins with the document id.
    """
    return in_brackets(citations.heading(passage.chunk))


def by_section_and_page(passage: Passage) -> str:
    """Returns `[title - section > subsection, page 3]`, without what the passage does not have."""
    return of_chunk(passage.chunk)


def of_chunk(chunk: Chunk) -> str:
    """Returns the heading `[title - section > subsection, page 3]` of a chunk.

    The heading has only the parts that the document has.
    """
    return in_brackets(", ".join(filter(None, (citations.heading(chunk), citations.pages(chunk)))))


def in_brackets(heading: str) -> str:
    """Returns `[heading]`, with parentheses instead of the square brackets inside it.

    So a title that contains brackets cannot end the heading and begin another one.
    """
    return f"[{heading.translate(_PARENTHESES)}]"


def context(
    passages: Iterable[Passage],
    heading: Heading = by_section,
    separator: str = "\n\n",
    *,
    quoted: bool = True,
) -> str:
    """Returns the texts of the passages as one text, in the given order, each below its heading.

    `heading` is a function that returns the heading of a passage, as `by_page` does; an empty
    heading is left out. `separator` is the text between two passages. Each line of a passage begins
    with `> `, so that no text can pretend to be another passage or another part of the prompt. If
    `quoted` is False, lines do not begin with `> `; this is for texts that are not part of a
    prompt.
    """
    quote = quoted_lines if quoted else str
    blocks = ((heading(passage), quote(passage.chunk.content.strip())) for passage in passages)
    return separator.join("\n".join(filter(None, block)) for block in blocks)
