"""Divides a document into the sections that get one summary each. A section is a range of leaves.

All functions are pure. Sections are consecutive, and each leaf is in exactly one section. If a leaf
contains text of two sections, it is in the section that contains most of the leaf.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.values.collections import SummaryUnit
from hrag.values.read_report import PageUnit
from hrag.values.tree import ParsedText, Section, Tree, path_below


def sections(parsed: ParsedText, tree: Tree, level: int, unit: SummaryUnit) -> list[range]:
    """Returns the range of leaf indices of each section, in order.

    `level` is the embedded level, whose chunks are the leaves. `unit` says what becomes a section:
    a page, a section between headings, or a chunk of the top level. If the text has no pages or
    headings, but `unit` asks for them, the chunks of the top level become the sections. Rows of a
    table and seconds of a recording do not count as pages, because a summary of one row says no
    more than the row.
    """
    leaves = tree.level(level)
    if unit is SummaryUnit.PAGE and parsed.pages and parsed.page_unit is PageUnit.PAGE:
        owners = _pages(parsed, leaves)
    elif unit is SummaryUnit.SECTION and parsed.sections:
        owners = leaves["section"]
    else:
        owners = tree.ancestors(level)[-1]
    bounds = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(leaves)]
    return list(map(range, bounds[:-1], bounds[1:]))


def _pages(parsed: ParsedText, leaves: NDArray[Any]) -> NDArray[Any]:
    """Returns the ordinal of each leaf's page, from 1, as `int64[leaves]`.

    A leaf's page is the page that contains the middle of the leaf.
    """
    starts = [page.char_start for page in parsed.pages]
    middles = (leaves["char_start"].astype(np.int64) + leaves["char_end"]) // 2
    pages: NDArray[Any] = np.searchsorted(starts, middles, side="right")
    return pages


def heading(title: str, sections: Sequence[Section], parents: Sequence[int], section: int) -> str:
    """Returns `title - outer > inner`: a document's title, then the titles of a section's path.

    The path leads from the outermost section that contains the section down to the section itself.
    Titles that are missing are left out. `section` is an index into `sections`, or NONE. `parents`
    is the result of `section_parents(sections)`. It is a parameter because computing it for each
    heading would take quadratic time.
    """
    path = " > ".join(path_below(title, sections, parents, section))
    return " - ".join(filter(None, (title, path)))
