"""The indexed text of a leaf: the text in the lexical index and in the vector index.

The text of a leaf alone often does not say what it is about. So the indexed text begins with the
title of the document and the titles of the sections that contain the leaf. In the lexical index,
the words of the document's name that the title lacks follow. They are not in the vector index, so
a document is never embedded again because of its name.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hrag.passages.document_name import document_name
from hrag.text.analysis import analyzer
from hrag.values.collections import CollectionSettings
from hrag.values.tree import Section, Tree, path_below, section_parents

# A longer heading is cut to this many characters, which are about 60 tokens. So the leaf's text
# outweighs the heading.
MAX_HEADING_CHARS = 256


class IndexedName(NamedTuple):
    """The name of a document, as its leaves are indexed with it.

    `words` is the part of `name` that the title lacks, with a line end; "" if the title has all
    words of the name. Both are empty in a collection that does not index names.
    """

    name: str = ""
    words: str = ""


NO_NAME = IndexedName()


class IndexedLeaf(NamedTuple):
    """A leaf's text with its heading line and the name of its document.

    `heading` is the line `title > section > subsection`, with its line end, or empty.
    """

    heading: str
    text: str
    name: IndexedName = NO_NAME

    @property
    def embedded(self) -> str:
        """The text from which the leaf's vector is computed: the heading, then the leaf's text."""
        return self.heading + self.text

    @property
    def lexical(self) -> str:
        """The text for the lexical index.

        The heading and the words of the name are in it twice, so that their words count twice.
        """
        return 2 * (self.heading + self.name.words) + self.text

    def searched_texts(self) -> Iterator[str]:
        """Yields the texts that may contain a required part of a query."""
        yield self.heading
        yield self.text
        if self.name.name:
            yield self.name.name


def indexed_name(
    settings: CollectionSettings, title: str, source: str, document_id: str
) -> IndexedName:
    """Returns the name with which the leaves of a document are indexed.

    `title` is the title of the document, and `source` is the source with which it was ingested.
    """
    if not (settings.index_headings and settings.analyzer):
        return NO_NAME
    analysis = analyzer(settings.analyzer)
    name = document_name(source, document_id) if analysis.indexes_names else ""
    words = analysis.without_words_of(name, title[:MAX_HEADING_CHARS]) if name else ""
    return IndexedName(name, f"{words}\n" if words else "")


def indexed_leaves(
    text: str,
    title: str,
    sections: Sequence[Section],
    tree: Tree,
    level: int,
    *,
    headings: bool,
    name: IndexedName = NO_NAME,
) -> list[IndexedLeaf]:
    """Returns the indexed text of the leaves, which are the chunks at `level`, in order.

    With `headings`, each leaf gets a heading of at most MAX_HEADING_CHARS characters and a line
    end. A first section that repeats the title is left out of the heading. `name` is the name of
    the document from `indexed_name`. It may be left out if only the vectors are needed.
    """
    leaves = tree.level(level)
    bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
    texts = [text[start:end] for start, end in bounds]
    if not headings or not (title or sections):
        return [IndexedLeaf("", leaf, name) for leaf in texts]
    leaf_sections = leaves["section"].tolist()
    parents = section_parents(sections)
    lines = {section: _heading(title, sections, parents, section) for section in set(leaf_sections)}
    return [
        IndexedLeaf(lines[section], leaf, name)
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
