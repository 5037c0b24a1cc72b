"""The indexed text of a leaf: the text in the lexical index and in the vector index.

The text of a leaf alone often does not say what it is about. So the indexed text begins with the
title of the document and the titles of the sections that contain the leaf.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hrag.values.tree import Section, Tree, path_below, section_parents

# A longer heading is cut to this many characters, which are about 60 tokens. So the leaf's text
# outweighs the heading.
MAX_HEADING_CHARS = 256


class IndexedLeaf(NamedTuple):
    """A leaf's text with its heading line.

    `heading` is the line `title > section > subsection`, with its line end, or empty.
    """

    heading: str
    text: str

    @property
    def embedded(self) -> str:
        """The text from which the leaf's vector is computed: the heading, then the leaf's text."""
        return self.heading + self.text

    @property
    def lexical(self) -> str:
        """The text for the lexical index. The heading occurs twice, so its words count twice."""
        return 2 * self.heading + self.text


def indexed_leaves(
    text: str, title: str, sections: Sequence[Section], tree: Tree, level: int, *, headings: bool
) -> list[IndexedLeaf]:
    """Returns the indexed text of the leaves, which are the chunks at `level`, in order.

    With `headings`, each leaf gets a heading of at most MAX_HEADING_CHARS characters and a line
    end. A first section that repeats the title is left out of the heading.
    """
    leaves = tree.level(level)
    bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
    texts = [text[start:end] for start, end in bounds]
    if not headings or not (title or sections):
        return [IndexedLeaf("", leaf) for leaf in texts]
    leaf_sections = leaves["section"].tolist()
    parents = section_parents(sections)
    lines = {section: _heading(title, sections, parents, section) for section in set(leaf_sections)}
    return [
        IndexedLeaf(lines[section], leaf)
        for section, leaf in zip(leaf_sections, texts, strict=True)
    ]


def _heading(title: str, sections: Sequence[Section], parents: Sequence[int], section: int) -> str:
    """Returns the heading of the leaves of one section, with its line end.

    `section` is the index of the section, or NONE for leaves in no section. Returns "" if neither
    the document nor the section has a title.
    """
    path = path_below(title, sections, parents, section)
    heading = " > ".join(filter(None, (title, *path)))[:MAX_HEADING_CHARS]
    return f"{heading}\n" if heading else ""
