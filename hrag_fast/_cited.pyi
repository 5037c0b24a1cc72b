"""Types and documentation of the compiled `matched_sentence` and `merged_spans`.

Arrays are one-dimensional and C-contiguous, and may be read-only. A wrong dtype or shape raises
ValueError, a wrong type raises TypeError. The GIL is kept, because a call takes only some
microseconds.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from hrag_fast._analysis import Matches

REACH: Final = 125
"""First, this many characters before and after a leaf are read, to complete a sentence that the
leaf's edge cuts. If they are too few, MAX_SENTENCE_CHARS characters are read."""
MAX_SECTIONS_TRIED: Final = 16
"""If several sections begin at the same character, only the first of them, up to this many, are
searched for a heading."""

def matched_sentence(
    text: Buffer,
    leaf: Sequence[int],
    section_starts: Buffer,
    heading_end: Callable[[str, int, int], int],
    matches: Matches | None = None,
    weights: NDArray[np.float32] | None = None,
) -> tuple[int, int, int, int]:
    """Returns the sentence of a leaf whose terms have the highest sum of weights.

    The result is the start and the end of the sentence in bytes, then in code points. The white
    space around the sentence is left out.

    * `text`: the document's whole text, UTF-8.
    * `leaf`: the fields of hrag.values.tree.CHUNK. The last one is the index of the leaf's section,
      or NONE.
    * `section_starts`: uint32, the code point at which each section begins, ascending.
    * `heading_end`: a function. It is called with a part of the text, an offset in this part, and
      the section that begins there. It returns the offset after the section's heading, or the same
      offset if the section has no heading. If several sections begin at the same character, the
      function is called for the first MAX_SECTIONS_TRIED of them.
    * `matches`: where terms occur in the leaf, in code points from its start.
    * `weights`: float32, the weights of the terms; `matches.which` has the indexes into it.

    A term counts once in a sentence. A heading is a separate sentence. Of sentences with equal
    sums, the first one is returned. Exception: if the first one is a heading, and another sentence
    of its section has the same sum, the other sentence is returned.

    If no term with a weight occurs, the result is the first sentence that has a letter or digit,
    in the section that has most of the leaf. It is a heading only if there is no other sentence.

    If the leaf's edge cuts a sentence, the whole sentence is returned, provided that it ends
    within MAX_SENTENCE_CHARS code points of the edge. So the result may begin before the leaf and
    end after it.

    Raises ValueError for a leaf that is empty or outside the text, and for matches whose arrays
    differ in length. Raises IndexError for a section or a term that does not exist.
    """

def merged_spans(
    parts: Sequence[tuple[int, Matches]], first: int, end: int
) -> list[tuple[int, int]]:
    """Returns the spans of all matches between `first` and `end`, in order, in code points.

    Each of `parts` is an offset in code points and the matches in the text that begins there; the
    spans of these matches count from this offset. In the result, spans count from 0, like `first`
    and `end`, and spans that overlap are joined.

    Raises ValueError for matches whose arrays differ in length.
    """
