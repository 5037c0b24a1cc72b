"""The indexed text of a leaf: what both sources search.

A leaf alone often does not say what it is about; the title of its document and the titles of
the sections around it do.
"""

from collections.abc import Sequence

from hrag.tree import Section, Tree, path_below, section_parents

MAX_HEADING_CHARS = 256  # Some 60 tokens, so that a leaf's own text outweighs them.


def embedded_texts(
    text: str, title: str, sections: Sequence[Section], tree: Tree, level: int, *, headings: bool
) -> list[str]:
    """Returns what is embedded of each leaf, which are the chunks at `level`, in order.

    With `headings` it begins with a line `title > section > subsection`, of at most
    MAX_HEADING_CHARS characters, unless that is empty. A first section that repeats the title
    is left out.
    """
    return _with_headings(text, title, sections, tree, level, times=int(headings))


def lexical_texts(
    text: str, title: str, sections: Sequence[Section], tree: Tree, level: int, *, headings: bool
) -> list[str]:
    """Returns what the lexical index holds of each leaf, as `embedded_texts` does.

    With `headings` the line comes twice, so that its words count twice.
    """
    return _with_headings(text, title, sections, tree, level, times=2 * headings)


def _with_headings(
    text: str, title: str, sections: Sequence[Section], tree: Tree, level: int, *, times: int
) -> list[str]:
    leaves = tree.level(level)
    bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
    texts = [text[start:end] for start, end in bounds]
    if not times or not (title or sections):
        return texts
    owners = leaves["section"].tolist()
    parents = section_parents(sections)
    lines = {owner: times * _line(title, sections, parents, owner) for owner in set(owners)}
    return [lines[owner] + leaf for owner, leaf in zip(owners, texts, strict=True)]


def _line(title: str, sections: Sequence[Section], parents: Sequence[int], section: int) -> str:
    """The line for leaves of one section, by index or NONE; empty if there is nothing to say."""
    path = path_below(title, sections, parents, section)
    heading = " > ".join(filter(None, (title, *path)))[:MAX_HEADING_CHARS]
    return f"{heading}\n" if heading else ""
