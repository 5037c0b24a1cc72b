"""Types and documentation of the compiled part of citations.

Arrays are one-dimensional and C-contiguous, and may be read-only. A wrong dtype or shape is a
ValueError, a wrong type a TypeError. The GIL is kept: a leaf takes some microseconds.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from hrag_fast._analysis import Matches

def matched_sentence(
    text: Buffer,
    leaf: Sequence[int],
    section_starts: Buffer,
    heading_end: Callable[[str, int, int], int],
    matches: Matches | None = None,
    weights: NDArray[np.float32] | None = None,
) -> tuple[int, int, int, int]:
    """Returns the sentence of a leaf whose terms have the highest sum of weights.

    That is its first byte and the one past its last, and the same in code points, without the
    white space around it.

    * `text`: the document's whole text, UTF-8.
    * `leaf`: the fields of hrag.values.tree.CHUNK; its section is an index, or NONE.
    * `section_starts`: uint32, the code point at which each section begins, ascending.
    * `heading_end`: called with a part of the text, an offset in it and the section that begins
      there, returns the offset behind the section's heading; the same one if it has none. Of the
      sections that begin at one place, the first 16 are asked for.
    * `matches`: where terms occur in the leaf, in code points from its start.
    * `weights`: float32, how much each of the terms that `matches` numbers counts.

    A term counts once in a sentence. A heading is a sentence of its own. Of equal sentences the
    first one is returned, but a heading only if no sentence of its own section is equal. If no
    term with a weight occurs, it is the first sentence with a letter or digit of the section that
    holds most of the leaf, and a heading only if there is no other. A sentence that the leaf's
    edge cuts is returned whole if it ends within MAX_SENTENCE_CHARS code points of the edge, so it
    may begin before the leaf and end behind it.

    Raises ValueError for a leaf that is empty or outside the text and for matches whose columns
    differ in length, IndexError for a section or a term that does not exist.
    """

def merged_spans(
    parts: Sequence[tuple[int, Matches]], first: int, end: int
) -> list[tuple[int, int]]:
    """Returns the spans of matches that lie from `first` to `end`, in order, as code points.

    Each part has the code point from which its matches count. Spans that overlap are one.

    Raises ValueError for matches whose columns differ in length.
    """
