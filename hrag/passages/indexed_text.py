"""The indexed text of a leaf: what both sources search.

A leaf alone often does not say what it is about; the title of its document and the titles of
the sections around it do.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hrag.values.tree import Section, Tree, path_below, section_parents

MAX_HEADING_CHARS = 256  # Some 60 tokens, so that a leaf's own text outweighs them.


class IndexedLeaf(NamedTuple):
    """A leaf's text, and the line above it, `title > section > subsection`, which may be empty."""

    heading: str
    text: str

    @property
    def embedded(self) -> str:
        """What is embedded."""
        return self.heading + self.text

    @property
    def lexical(self) -> str:
        """What the lexical index holds: the heading comes twice, so that its words count twice."""
        return 2 * self.heading + self.text


def indexed_leaves(
    text: str, title: str, sections: Sequence[Section], tree: Tree, level: int, *, headings: bool
) -> list[IndexedLeaf]:
    """Returns the leaves, which are the chunks at `level`, in order.

    With `headings` they have their line, of at most MAX_HEADING_CHARS characters, with the end of
    the line. A first section that repeats the title is left out.
    """
    leaves = tree.level(level)
    bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
    texts = [text[start:end] for start, end in bounds]
    if not headings or not (title or sections):
        return [IndexedLeaf("", each) for each in texts]
    owners = leaves["section"].tolist()
    parents = section_parents(sections)
    lines = {owner: _line(title, sections, parents, owner) for owner in set(owners)}
    return [IndexedLeaf(lines[owner], leaf) for owner, leaf in zip(owners, texts, strict=True)]


def _line(title: str, sections: Sequence[Section], parents: Sequence[int], section: int) -> str:
    """The line for leaves of one section, by index or NONE; empty if there is nothing to say."""
    path = path_below(title, sections, parents, section)
    heading = " > ".join(filter(None, (title, *path)))[:MAX_HEADING_CHARS]
    return f"{heading}\n" if heading else ""
