"""The indexed text of a leaf: what both sources search.

A leaf alone often does not say what it is about; the title of its document and the titles of
the sections around it do.
"""

from collections.abc import Sequence

from hrag.tree import NONE, Section, Tree, section_parents

MAX_HEADING_CHARS = 256  # Some 60 tokens, so that a leaf's own text outweighs them.


def indexed_texts(
    text: str, title: str, sections: Sequence[Section], tree: Tree, level: int, *, headings: bool
) -> list[str]:
    """Returns the indexed text of each leaf, which are the chunks at `level`, in order.

    With `headings` it begins with a line `title > section > subsection`, of at most
    MAX_HEADING_CHARS characters, unless that is empty. A title that the first section repeats
    stays: its words count twice, which found 1 to 5 % more on the development sets.
    """
    leaves = tree.level(level)
    bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
    texts = [text[start:end] for start, end in bounds]
    if not headings or not (title or sections):
        return texts
    owners = leaves["section"].tolist()
    parents = section_parents(sections)
    lines = {owner: _line(title, sections, parents, owner) for owner in set(owners)}
    return [lines[owner] + leaf for owner, leaf in zip(owners, texts, strict=True)]


def _line(title: str, sections: Sequence[Section], parents: Sequence[int], section: int) -> str:
    """The line for leaves of one section, by index or NONE; empty if there is nothing to say."""
    path: list[str] = []
    while section != NONE:
        path.insert(0, sections[section].title)
        section = parents[section]
    heading = " > ".join(filter(None, (title, *path)))[:MAX_HEADING_CHARS]
    return f"{heading}\n" if heading else ""
