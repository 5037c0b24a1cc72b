"""Which leaves of a document make a section, to be summarised and searched as one.

Pure. Sections follow each other and hold every leaf once. A leaf that lies over a border
belongs to where most of it lies.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.tree import NONE, ParsedText, Section, Tree
from hrag.types import SummaryUnit


def sections(parsed: ParsedText, tree: Tree, level: int, unit: SummaryUnit) -> list[range]:
    """Ranges of the leaves, which are chunks of `level`; in order.

    Where a text has no pages, or no headings, its chunks of the top level stand for them.
    """
    leaves = tree.level(level)
    if unit is SummaryUnit.PAGE and parsed.pages:
        owners = _pages(parsed, leaves)
    elif unit is SummaryUnit.SECTION and parsed.sections:
        owners = leaves["section"]
    else:
        owners = tree.ancestors(level)[-1]
    bounds = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(leaves)]
    return list(map(range, bounds[:-1], bounds[1:]))


def _pages(parsed: ParsedText, leaves: NDArray[Any]) -> NDArray[Any]:
    """The page that the middle of each leaf lies on."""
    starts = [page.char_start for page in parsed.pages]
    middles = (leaves["char_start"].astype(np.int64) + leaves["char_end"]) // 2
    pages: NDArray[Any] = np.searchsorted(starts, middles, side="right")
    return pages


def heading(title: str, sections: Sequence[Section], parents: Sequence[int], section: int) -> str:
    """`title - outer > inner`, as far as there is one; `section` is an index or NONE.

    `parents` are `section_parents` of the sections: worked out once for all of them, or a
    document of many headings would take the square of its time.
    """
    path: list[str] = []
    while section != NONE:
        path.insert(0, sections[section].title)
        section = parents[section]
    if path[:1] == [title]:
        path = path[1:]
    return " - ".join(filter(None, (title, " > ".join(path))))
